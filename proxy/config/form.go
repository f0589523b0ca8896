package config

type file struct{}
