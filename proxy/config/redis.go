package config

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/limiter"
)

// A RedisMode is the kind of Redis deployment.
type RedisMode string

// The modes.
const (
	RedisSingle   RedisMode = "single"   // one server; replicas are not used
	RedisSentinel RedisMode = "sentinel" // the master reported by Sentinel
	RedisCluster  RedisMode = "cluster"  // Redis Cluster
)

// redis compiles the connection to the shared store.
func (l *loader) redis(f, made *Redis) {
	for i := range f.Addrs {
		if a := l.address(&f.Addrs[i], f.Addrs[i]); a.port == "0" {
			l.Wrong(&f.Addrs[i], "has port 0", "write the port that Redis listens on, for example 6379")
		}
	}
	isSentinel, t := f.Mode == RedisSentinel, &f.Files
	l.refuse([]finding{
		{f.Mode == RedisSingle && len(f.Addrs) != 1 && l.Valid(&f.Addrs), &f.Addrs, "mode single wants exactly one address", "name one server, or write mode: sentinel or cluster"},
		{!isSentinel && f.Master != "", &f.Master, "only sentinels know masters by name", "write mode: sentinel, or leave it out"},
		{!isSentinel && f.Sentinel != (Login{}), &f.Sentinel, "there are no sentinels to log in to", "write mode: sentinel, or leave it out"},
		{isSentinel && f.Master == "" && l.Valid(&f.Master), f, "has no master", "write master: with the name that the sentinels know it by"},
		{f.Timeout > longestWait, &f.Timeout, "requests would wait so long for a Redis that hangs", "write at most 1m, for example 50ms"},
		{!t.Enabled && *t != (redisTLSForm{}), t, "TLS is configured, but not enabled", "write enabled: true beside it"},
	})
	l.token(&f.Prefix, f.Prefix)
	made.Files = redisTLSForm{}
	trusted := l.trust(&t.CA, &t.Cert, &t.Key, &t.ServerName)
	if t.Enabled {
		made.TLS = &trusted
	}
}

// Equal reports whether r and other are the same connection.
func (r Redis) Equal(other Redis) bool {
	if (r.TLS == nil) != (other.TLS == nil) || r.TLS != nil && !r.TLS.equal(*other.TLS) {
		return false
	}
	r.TLS, other.TLS = nil, nil
	return reflect.DeepEqual(r, other)
}

func (t UpstreamTLS) equal(other UpstreamTLS) bool {
	none := &tls.Certificate{}
	shown, shownToo := cmp.Or(t.Certificate, none).Certificate, cmp.Or(other.Certificate, none).Certificate
	return t.ServerName == other.ServerName && t.Roots.Equal(other.Roots) && slices.EqualFunc(shown, shownToo, bytes.Equal)
}

// redisson checks that a limit can be shared with Redisson: it must be a token bucket with
// one rate, and its name must contain the key's text as in Java.
func (l *limits) redisson(f, limit *Limit) {
	name := f.RedissonName
	if name == "" || limit.Key == nil {
		return // none, or already reported
	}
	at := &f.RedissonName
	global := limit.Key.From.Source.IsConstant()
	keyed := strings.Contains(name, "{key}")
	if !l.refuseFirst([]finding{
		{!limit.Algorithm.IsRedisson(), at, "a Redisson limiter is a token bucket", "leave algorithm and concurrent out"},
		{len(limit.Rates) > 1 || len(limit.Overrides) > 0 || limit.Plans != nil, at, "a Redisson limiter has one rate", "write one rate, and no overrides or plans"},
		{f.Penalty != nil, at, "a Redisson limiter has no bans", "leave penalty out"},
		{limit.Key.Join != nil, at, "the key " + limit.Key.Name + " is joined of several and has no text of its own", "use a key that is not joined"},
		{global && keyed, at, "the key is global: it has no text", "leave {key} out"},
		{!global && !keyed, at, "all keys would be counted together", "write {key} for the key's text in the name"},
		{l.made.Privacy.HashSecret != "" || limit.Key.Sensitive, at, "the key's text would be stored in Redis, contrary to privacy.hash_secret or sensitive", "limit another key, or leave it out"},
	}) && l.nameable(at) && l.version(f, limit) && l.alone(f, limit) && l.main.Store != StoreRedis {
		l.Warn(at, "with store: memory nothing is shared with Redisson", "write store: redis")
	}
}

// nameable checks the name of a limiter.
func (l *limits) nameable(at *string) bool {
	name := *at
	start, end, _ := strings.Cut(name, "{key}")
	err := limiter.CheckRedissonName(strings.ReplaceAll(name, "{key}", "x"))
	return !l.refuseFirst([]finding{
		{len(name) > limiter.MaxRedissonName/2, at, "the name is too long for a key's text", "write a shorter one"},
		{strings.Count(name, "{key}") > 1, at, "two texts can make the same name, because {key} is in it twice", "write {key} once"},
		{strings.HasSuffix(name, ":value") || strings.HasSuffix(name, ":permits"), at, "Redisson uses this ending for other keys", "use another ending"},
		{err != nil, at, "braces in the name put its keys into several slots of a cluster", "write no braces but {key}, or one pair more: limit:{{key}}"},
		{strings.Trim(start, "{:")+strings.Trim(end, "}:") == "", at, "a client could choose any key in Redis", "write a name of its own beside {key}: limit:{key}"},
		{strings.HasPrefix(name, l.main.Redis.Prefix+":"), at, "names that begin with redis.prefix are reserved for Weir", "use another beginning"},
	})
}

// version parses the Redisson version of the Java programs.
func (l *limits) version(f, limit *Limit) bool {
	if f.RedissonVersion == "" {
		return true
	}
	form, err := limiter.RedissonFormatOf(f.RedissonVersion)
	if err != nil {
		l.Wrong(&f.RedissonVersion, "no version of Redisson is "+f.RedissonVersion, "write one as 3.16.3")
		return false
	}
	limit.RedissonFormat = form
	if form == limiter.RedissonWindow {
		l.Warn(&f.RedissonVersion, "Redisson up to 3.13.2 counts a window that begins anew: up to twice the rate passes across a border", "let all programs use 3.17 or later")
	}
	return true
}

// alone checks that the limiter's name cannot equal that of another limit.
func (l *limits) alone(f, limit *Limit) bool {
	mine := newTemplate(f, limit)
	for _, other := range l.templates {
		same := other.name == mine.name // intentionally
		if l.refuseFirst([]finding{
			{same && other.form != mine.form, &f.RedissonName, "another limit shares these limiters with another redisson_version", "write the same version at both"},
			{!same && other.overlaps(mine), &f.RedissonName, "a key can make this name the same as " + other.name + " makes it", "let the names differ before {key}, or after it"},
		}) {
			return false
		}
	}
	l.templates = append(l.templates, mine)
	return true
}

// manyCalls remarks which routes need more than two script calls of a cluster for a request.
func (r *routes) manyCalls(made []*Route) {
	for _, route := range made {
		keys := map[string]bool{}
		for _, l := range route.Limits {
			if l.Mode != Off && l.Key != nil {
				keys[cmp.Or(l.RedissonName, strings.Join(l.Key.Names(), "+"))] = true
			}
		}
		if r.main.Redis.Mode == RedisCluster && len(keys) > 2 {
			r.remark(route.form, fmt.Sprintf("a request needs up to %d script calls of the cluster: its limits have so many keys", len(keys)),
				"let limits have the same key, or use one Redis as long as one core is enough for it")
		}
	}
}

// countedOnce checks that no request of a route would be counted twice by one limiter, which no store does.
func (r *routes) countedOnce(route *Route) {
	for i, l := range route.Limits {
		same := func(o *Limit) bool { return o.RedissonName == l.RedissonName && o.Mode != Off }
		twice := l.RedissonName != "" && l.Mode != Off && slices.ContainsFunc(route.Limits[:i], same)
		r.refuse([]finding{{twice && r.Valid(&l.form.RedissonName), &l.form.RedissonName, "another limit of route " + route.Name + " has the same limiters, and no request counts twice there", "take one of them out, or write another name"}})
	}
}
