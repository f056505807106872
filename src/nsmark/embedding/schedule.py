"""How long to train, and with which learning rate at which step."""

from __future__ import annotations

from dataclasses import dataclass

from nsmark.embedding.config import EmbeddingConfig


@dataclass(slots=True)
class Schedule:
    """A pure function of the settings and of one number: the step at which the targets held."""

    config: EmbeddingConfig
    num_texts: int
    """Texts trained on."""
    held_since: int | None = None
    """First step at which the targets held."""

    @property
    def budget(self) -> int:
        """The most steps there may be."""
        if self.config.num_epochs is None:
            return self.config.max_steps
        per_epoch = max(1, self.num_texts // self.config.batch_size)
        return min(self.config.max_steps, self.config.num_epochs * per_epoch)

    @property
    def cooling_from(self) -> int | None:
        """The step after which the learning rates fall; None while it is not known."""
        if self.config.num_epochs is not None:
            return self.budget - self.config.cooldown_steps
        return self.held_since

    @property
    def last_step(self) -> int:
        """The step that ends the training, as far as is known."""
        if self.config.num_epochs is not None or self.held_since is None:
            return self.budget
        return min(self.budget, self.held_since + self.config.cooldown_steps)

    def can_go_on(self, step: int) -> bool:
        """Return whether a step ends a cool-down, not the budget."""
        return step == self.last_step < self.budget

    def strictness(self, step: int) -> float:
        """Return by what the weight of all that is to stay as it was is multiplied at a step.

        It rises while the learning rates fall, by the same factor at every step of the first half:
        all at once, and at the full rate, it would undo what was learned.
        """
        if self.cooling_from is None or step <= self.cooling_from:
            return 1.0
        half = max(1.0, self.config.cooldown_steps / 2)
        return float(self.config.cooldown_fidelity ** min(1.0, (step - self.cooling_from) / half))

    def rate_factor(self, step: int) -> float:
        """Return by what the learning rates are multiplied at a step."""
        factor = min(1.0, step / max(1, self.config.warmup_steps))
        if self.cooling_from is not None:
            left = 1 - (step - self.cooling_from) / (self.config.cooldown_steps + 1)
            factor *= min(1.0, max(left, 0.0))
        return factor
