package config

import (
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

// balance parses round_robin, least_loaded or hash:KEY.
func (u *upstreams) balance(f *upstreamForm) (Balance, *key.Spec) {
	const choices = "write round_robin, least_loaded or hash:KEY"
	name, text, hashed := strings.Cut(f.Balance, ":")
	balance := Balance(name)
	switch {
	case hashed && balance != BalanceHash,
		!hashed && balance != BalanceRoundRobin && balance != BalanceLeastLoaded:
		if f.Balance != "" {
			u.Wrong(&f.Balance, form.Quote(f.Balance)+" is not a load balancing method", choices)
		}
		return BalanceRoundRobin, nil
	case len(f.Targets) == 1 && u.Given(&f.Balance):
		u.Warn(&f.Balance, "there is one target, so nothing is balanced", "leave it out, or name more targets")
	}
	if !hashed {
		return balance, nil
	}
	u.Alias(&text, &f.Balance)
	if text == "" {
		u.Wrong(&text, "has no key", choices)
	}
	by := u.keys.refer(&text)
	switch {
	case by == nil:
		return BalanceRoundRobin, nil // already reported
	case by.From.Source.IsConstant():
		u.Warn(&f.Balance, "all requests have this key, so all go to one target", "name a key that differs between clients")
	case mayMiss(by):
		u.Warn(&f.Balance, "requests without "+by.Name+" are spread by round robin", "use a key that every request has, or set on_missing: {use: client_ip}")
	}
	if f.Health.SlowStart > 0 {
		u.Warn(&f.Health.SlowStart, "a target that is back gets the requests of its keys at once", "leave it out, or balance in another way")
	}
	return BalanceHash, by
}

// mayMiss reports whether requests without the key are accepted.
func mayMiss(s *key.Spec) bool {
	for _, part := range s.Join {
		if mayMiss(part) {
			return true
		}
	}
	if s.Of != nil {
		return mayMiss(s.Of)
	}
	return s.From.Source.IsNamed() && s.OnMissing != key.Shared && (s.OnMissing != key.Use || s.Fallback == nil || mayMiss(s.Fallback))
}

func (u *upstreams) health(f *healthForm) Health {
	h := Health{
		Path:      f.Path,
		Interval:  time.Duration(f.Interval),
		Timeout:   time.Duration(f.Timeout),
		Status:    f.Status.statuses(),
		After:     f.After,
		Rest:      time.Duration(f.Rest),
		SlowStart: time.Duration(f.SlowStart),
	}
	if len(f.Status) == 0 {
		h.Status.add(200, 299)
	}
	if f.Path != "" && (!strings.HasPrefix(f.Path, "/") || strings.HasPrefix(f.Path, "//") || strings.ContainsAny(f.Path, " ?#")) {
		u.Wrong(&f.Path, form.Quote(f.Path)+" is not a path", "write for example /healthz, without a query")
	}
	if f.Path == "" && u.Valid(&f.Path) && (u.Given(&f.Interval) || u.Given(&f.Timeout) || u.Given(&f.Status)) {
		u.Warn(f, "targets are not checked: there is no path", "write path: with the path to request, for example /healthz")
	}
	return h
}

func timeouts(f *timeoutsForm) Timeouts {
	return Timeouts{
		Connect:  time.Duration(f.Connect),
		TLS:      time.Duration(f.TLS),
		Response: time.Duration(f.Response),
		Idle:     time.Duration(f.Idle),
	}
}

// checkProtocol checks that targets with this scheme support protocol.
func (u *upstreams) checkProtocol(pointer *string, protocol Protocol, scheme string) {
	switch {
	case protocol == ProtocolH2 && scheme != "https":
		u.Wrong(pointer, "h2 needs https, and this target is "+scheme, "write https://, or protocol: h2c")
	case protocol == ProtocolH2C && scheme == "https":
		u.Wrong(pointer, "h2c is HTTP/2 without TLS, and this target is https", "write protocol: h2")
	}
}
