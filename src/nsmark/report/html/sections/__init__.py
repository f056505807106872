"""The page's sections: each takes the facts and returns markup."""
