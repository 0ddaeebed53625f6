"""Prepare tiny Shakespeare with GPT-2's tokens: prepare_shakespeare.py --tokenizer gpt2, a twentieth to validate.

python prepare_data/prepare_shakespeare_gpt2.py --path_to_save data/shakespeare_gpt2
"""

from prepare_shakespeare import main

if __name__ == "__main__":
    main("data/shakespeare_gpt2", 0.05, "gpt2")
