"""What every benchmark is told. No decisions."""

from dataclasses import dataclass
from pathlib import Path

MODEL = "SmolLM2-135M-Instruct"


@dataclass(frozen=True)
class Settings:
    """pairs: how often A and B are measured. models_root: holds the SmolLM2 servable."""

    pairs: int
    models_root: Path

    @property
    def servable(self) -> Path:
        """The servable's folder. Raises SystemExit when it is not there."""
        folder = self.models_root / MODEL
        if not (folder / "servable.json").exists():
            raise SystemExit(f"{folder} holds no servable; `swarm up --model-dir {self.models_root}` imports it")
        return folder
