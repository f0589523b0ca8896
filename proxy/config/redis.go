package config

import (
	"bytes"
	"reflect"
	"slices"
	"time"
)

// A RedisMode is the kind of Redis deployment.
type RedisMode string

// The modes.
const (
	RedisSingle   RedisMode = "single"   // one server; replicas are not used
	RedisSentinel RedisMode = "sentinel" // the master reported by Sentinel
	RedisCluster  RedisMode = "cluster"  // Redis Cluster
)

// Redis configures the connection to the shared store.
type Redis struct {
	Mode     RedisMode
	Addrs    []string // host:port; exactly one when Mode is RedisSingle
	Master   string   // master name in Sentinel; not empty if Mode is RedisSentinel
	Username string
	Password string
	Sentinel Login         // to the sentinels
	TLS      *UpstreamTLS  // nil: without TLS
	Prefix   string        // of every key: "weir"
	Timeout  time.Duration // maximum time for one decision
	Breaker  Breaker
}

// A Login holds the credentials for a server.
type Login struct{ Username, Password string }

// A Breaker configures the circuit breaker.
type Breaker struct {
	After int           // consecutive failures that open it, at least 1
	Rest  time.Duration // how long it stays open
}

// redis compiles the connection to the shared store.
func (r *loader) redis(f *redisForm) Redis {
	for i := range f.Addrs {
		if a := r.address(&f.Addrs[i], f.Addrs[i]); a.port == "0" {
			r.Wrong(&f.Addrs[i], "has port 0", "write the port that Redis listens on, for example 6379")
		}
	}
	r.checkMode(f)
	r.token(&f.Prefix, f.Prefix)
	made := Redis{
		Mode:     RedisMode(f.Mode),
		Addrs:    f.Addrs,
		Master:   f.Master,
		Username: f.Username,
		Password: string(f.Password),
		Sentinel: Login{f.Sentinel.Username, string(f.Sentinel.Password)},
		Prefix:   f.Prefix,
		Timeout:  time.Duration(f.Timeout),
		Breaker:  Breaker{After: f.Breaker.After, Rest: time.Duration(f.Breaker.Rest)},
	}
	t := &f.TLS
	trusted := r.trust(trustForm{&t.CA, &t.Cert, &t.Key, &t.ServerName})
	switch {
	case t.Enabled:
		made.TLS = &trusted
	case *t != (redisTLSForm{}):
		r.Wrong(t, "TLS is configured, but not enabled", "write enabled: true beside it")
	}
	return made
}

// checkMode checks that the fields fit the mode.
func (r *loader) checkMode(f *redisForm) {
	mode := RedisMode(f.Mode)
	if mode == RedisSingle && len(f.Addrs) != 1 && r.Valid(&f.Addrs) {
		r.Wrong(&f.Addrs, "mode single wants exactly one address", "name one server, or write mode: sentinel or cluster")
	}
	if mode != RedisSentinel {
		if f.Master != "" {
			r.Wrong(&f.Master, "only sentinels know masters by name", "write mode: sentinel, or leave it out")
		}
		if f.Sentinel != (loginForm{}) {
			r.Wrong(&f.Sentinel, "there are no sentinels to log in to", "write mode: sentinel, or leave it out")
		}
		return
	}
	if f.Master == "" && r.Valid(&f.Master) {
		r.Wrong(f, "has no master", "write master: with the name that the sentinels know it by")
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
	if t.ServerName != other.ServerName || !t.Roots.Equal(other.Roots) {
		return false
	}
	var shown, shownToo [][]byte
	if t.Certificate != nil {
		shown = t.Certificate.Certificate
	}
	if other.Certificate != nil {
		shownToo = other.Certificate.Certificate
	}
	return slices.EqualFunc(shown, shownToo, bytes.Equal)
}
