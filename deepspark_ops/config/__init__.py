"""Every option of every stage, declared once; one model a stage.

Models of commands that are no stage are in ``commands``, what several models declare in ``shared_options``.

The command line, the DAG's form (JSON schema) and the jobs read these models; nothing else declares a default.
A field with ``json_schema_extra=FORM`` appears in the form of the DAG that runs its stage. Paths are stored as given;
``resolve_against`` of the caller makes them absolute before a job sees them.
"""
