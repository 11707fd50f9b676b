"""Servables on the leader's disk: found, checked, imported. Serves nothing and runs no model."""
