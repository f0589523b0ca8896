package config

import (
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

// redisson checks that a limit can be one with a limiter of Redisson's: that one
// is a token bucket of one rate, and its name is the key's text as Java writes
// it.
func (l *limits) redisson(f *limitForm, limit *Limit) {
	name := f.RedissonName
	if name == "" || limit.Key == nil {
		return // none, or a problem already
	}
	wrong := func(what, instead string) { l.wrong(&f.RedissonName, what, instead) }
	limit.RedissonName = name
	global := limit.Key.From.Source == key.Global
	keyed := strings.Contains(name, "{key}")
	switch {
	case limit.Algorithm != limiter.TokenBucket:
		wrong("a limiter of Redisson's is a token bucket", "leave algorithm and concurrent out")
	case len(limit.Rates) > 1 || len(limit.Overrides) > 0:
		wrong("a limiter of Redisson's has one rate", "write one rate and no overrides")
	case f.Penalty != nil:
		wrong("a limiter of Redisson's knows no bans", "leave penalty out")
	case limit.Key.Join != nil:
		wrong("the key "+limit.Key.Name+" is joined of several and has no text of its own", "use a key that is not joined")
	case global && keyed:
		wrong("the key is global: it has no text", "leave {key} out")
	case !global && !keyed:
		wrong("all keys would be counted together", "write {key} where the key's text stands in the name")
	case l.bearers.privacy.HashSecret != "" || limit.Key.Sensitive:
		wrong("the key's text would stand in Redis, which privacy.hash_secret and sensitive keep out", "limit another key, or leave it out")
	case limiter.CheckRedissonName(strings.ReplaceAll(name, "{key}", "x")) != nil:
		wrong("braces in the name put its keys into several slots of a cluster", "write no braces but {key}, or one pair more: limit:{{key}}")
	case l.store != StoreRedis:
		l.warn(&f.RedissonName, "with store: memory nothing is shared with anybody", "write store: redis")
	}
}
