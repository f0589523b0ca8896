package config

// limitForm is one promise to each key.
type limitForm struct {
	// Name of the limit in answers, metrics and the store; that of the key when not given.
	Name string `yaml:"name,omitempty" jsonschema:"pattern=^[A-Za-z][A-Za-z0-9_.-]*$"`
	// Key says who is counted: the name of a key, an origin such as header:X-Phone, or a key written in place.
	Key *keyForm `yaml:"key" jsonschema:"required"`
	// Rate is COUNT/WINDOW: 1/60s, 5/1h, 1000/1d.
	Rate string `yaml:"rate,omitempty" jsonschema:"pattern=^\\s*[0-9]+/([0-9]+(ms|s|m|h|d|w|y))+\\s*$"`
	// Rates are several at once, of different windows.
	Rates list `yaml:"rates,omitempty" jsonschema:"pattern=^\\s*[0-9]+/([0-9]+(ms|s|m|h|d|w|y))+\\s*$"`
	// Concurrent is how many requests of a key may be under way at a time, in place of a rate.
	Concurrent int `yaml:"concurrent,omitempty" jsonschema:"minimum=1,maximum=10000"`
	// Distinct is a key whose different values are counted: so many of them for each key, as in key: client_ip, distinct: phone, rate: 3/1h. A value stands until one window after its last use, and costs nothing more while it stands.
	Distinct *keyForm `yaml:"distinct,omitempty"`
	// Cooldown is how long a key is refused after the first request that passed, after the second, and so on, in place of a rate. It begins anew twice the last one after the last request.
	Cooldown durations `yaml:"cooldown,omitempty"`
	// ResetOn says which answers on another route let the cooldown of the same key begin anew.
	ResetOn *resetForm `yaml:"reset_on,omitempty"`
	// Overrides are other rates for some values of the key. The values of a file that is pushed are hashed, as those of lists are, before others may read them; addresses are not.
	Overrides map[string]*list `yaml:"overrides,omitempty"`
	// Algorithm that keeps the rates: token_bucket allows no more than COUNT in any WINDOW; sliding_log promises the same for about half the cost in Redis, and cannot be shared with Redisson; gcra lets permits flow back evenly; fixed_window and sliding_window are cheaper and looser.
	Algorithm string `yaml:"algorithm" jsonschema:"default=token_bucket,enum=token_bucket,enum=sliding_log,enum=fixed_window,enum=sliding_window,enum=gcra"`
	// Burst is how many permits gcra gives at once; the rate's count when not given.
	Burst int `yaml:"burst,omitempty" jsonschema:"minimum=1,maximum=2147483647"`
	// Cost says where a request tells how many permits it asks for: header:NAME or query:NAME. A request that does not tell asks for 1.
	Cost string `yaml:"cost,omitempty"`
	// MaxCost is the most that a request may ask for.
	MaxCost int `yaml:"max_cost,omitempty" jsonschema:"minimum=1,maximum=2147483647"`
	// Scope says who counts together: overall is all Weirs that share a store, per_client each by itself, with the whole rate.
	Scope string `yaml:"scope" jsonschema:"default=overall,enum=overall,enum=per_client"`
	// Wait lets a request wait so long for its turn, first come, first served for each key, before it is refused.
	Wait duration `yaml:"wait,omitempty"`
	// MaxWaiting is how many requests of a key may wait at a time; 100 when not given.
	MaxWaiting int `yaml:"max_waiting,omitempty" jsonschema:"minimum=1,maximum=100000"`
	// RedissonName is the RRateLimiter of Redisson that counts, shared with Java programs: {key} stands for the key's text. Its own config in Redis goes before the rate.
	RedissonName string `yaml:"redisson_name,omitempty" jsonschema:"default="`
	// RedissonVersion is the oldest Redisson of those Java programs. It says how a limiter without entries gets its first: 3.17 and later is the default, earlier ones pack them in other ways, and up to 3.13.2 it is a window that begins anew, so that up to twice the rate passes across a border.
	RedissonVersion string `yaml:"redisson_version,omitempty" jsonschema:"default="`
	// Penalty bans a key that is refused too often.
	Penalty *penaltyForm `yaml:"penalty,omitempty"`
	// Count says which outcomes stay counted; all when not given.
	Count *countForm `yaml:"count,omitempty"`
	// Mode of this limit; that of defaults when not given.
	Mode string `yaml:"mode,omitempty" jsonschema:"enum=enforce,enum=shadow,enum=off"`
	// OnStoreFailure of this limit; that of defaults when not given.
	OnStoreFailure string `yaml:"on_store_failure,omitempty" jsonschema:"enum=allow,enum=deny,enum=local"`
	// Expose says whether clients may learn of this limit; that of defaults when not given.
	Expose *bool `yaml:"expose,omitempty"`
}

// resetForm says which answers let a cooldown begin anew.
type resetForm struct {
	// Route is the name of another route, which looks at the same key.
	Route string `yaml:"route" jsonschema:"required"`
	// Status of the answers there: 204, 2xx, 200-204; 2xx when not given.
	Status codes `yaml:"status,omitempty"`
}

// countForm says which outcomes stay counted.
type countForm struct {
	// Status of the upstream's answer: 404, 4xx, 400-403. After others the request gives back what it took.
	Status codes `yaml:"status" jsonschema:"required"`
}

// penaltyForm bans a key that is refused too often.
type penaltyForm struct {
	// Ban is for how long the limit refuses everything.
	Ban duration `yaml:"ban" jsonschema:"required"`
	// After so many refusals within the longest window of the limit.
	After int `yaml:"after" jsonschema:"default=1,minimum=1,maximum=1000000"`
}
