"""Prepare the tiny Shakespeare text with GPT-2's tokenizer.

Runs prepare_shakespeare.py with other defaults: --tokenizer gpt2 and --test_split_pct 0.05.

python prepare_data/prepare_shakespeare_gpt2.py --path_to_save data/shakespeare_gpt2
"""

from prepare_shakespeare import main

if __name__ == "__main__":
    main("data/shakespeare_gpt2", 0.05, "gpt2")
