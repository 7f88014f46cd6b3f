"""The facts that `millrace doctor` judges, and the one door to what they are about."""
