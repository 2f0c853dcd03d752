"""What a client learns and from what: data sets, their partition, models, training, evaluation."""
