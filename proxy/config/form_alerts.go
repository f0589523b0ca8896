package config

// alertsForm says who is told when limits are used up.
type alertsForm struct {
	// Webhook is the URL that is told, with POST; nobody is when it is empty. It is never shown: who knows it can write there.
	Webhook secretURL `yaml:"webhook" jsonschema:"default="`
	// Secret signs what is sent, with HMAC-SHA256.
	Secret secret `yaml:"secret" jsonschema:"default="`
	// Refused: a limit refused so many requests within one minute, on all nodes together.
	Refused int `yaml:"refused" jsonschema:"default=100,minimum=1,maximum=1000000000"`
	// Used: a key has used so much of a rate whose count is 100 or more.
	Used string `yaml:"used" jsonschema:"default=80%,pattern=^[1-9][0-9]*%$"`
	// Repeat is how long nothing more is said of the same limit.
	Repeat duration `yaml:"repeat" jsonschema:"default=1h"`
}
