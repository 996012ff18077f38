"""Every option of every stage, declared once; one model per stage.

Models of commands outside the stages are in ``commands``, options of several models in ``shared_options``.

The command line, the DAG's form (JSON schema) and the jobs read these models; nothing else declares a default.
A field with ``json_schema_extra=FORM`` appears in the form of the stage's DAG. Paths are stored as given;
``resolve_against`` of the caller makes all paths absolute before a job.
"""
