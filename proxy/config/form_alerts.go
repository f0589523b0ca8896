package config

// alertsForm configures the webhook for exhausted limits.
type alertsForm struct {
	// Webhook is the URL to which alerts are sent with POST; no alerts are sent when it is empty. It is treated as a secret.
	Webhook secretURL `yaml:"webhook" jsonschema:"default="`
	// Secret signs alerts with HMAC-SHA256.
	Secret secret `yaml:"secret" jsonschema:"default="`
	// Refused raises an alert when a limit refuses this many requests within one minute, on all nodes together.
	Refused int `yaml:"refused" jsonschema:"default=100,minimum=1,maximum=1000000000"`
	// Used raises an alert when a key has used this part of a rate whose count is 100 or more.
	Used string `yaml:"used" jsonschema:"default=80%,pattern=^[1-9][0-9]*%$"`
	// Repeat is the minimum time between alerts about the same limit.
	Repeat duration `yaml:"repeat" jsonschema:"default=1h"`
}
