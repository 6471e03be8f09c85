"""Airflow operators that stand a Cachew service up, train through it and take it down."""
