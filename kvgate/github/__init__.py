"""What GitHub is told: the comment on a pull request and the job summary. PyGithub is imported only here."""
