"""Who holds which layers of a model, in which form. Pure: facts in, a plan or a refusal with numbers out."""
