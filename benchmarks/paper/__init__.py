"""The paper's experiments with dpglm, beside what it compares with and what people use instead."""
