"""The sections of a calibration's page: each takes the facts and returns markup."""
