"""Complete Kubeflow pipelines and Airflow DAGs to run as they are or to copy."""
