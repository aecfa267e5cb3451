"""Decides cluster changes: brokers, topics, leaders, ISR, configs, producer ids. Not: how they become durable."""
