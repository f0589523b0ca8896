package proxy

import (
	"crypto/tls"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// pool returns the pool of an upstream. It is created once per generation.
func (g *generation) pool(from *config.Upstream) (*upstream.Pool, error) {
	if p := g.pools[from]; p != nil {
		return p, nil
	}
	p, err := upstream.New(g.poolConfig(from))
	if err != nil {
		return nil, err
	}
	g.pools[from] = p
	return p, nil
}

// poolConfig returns the pool configuration of an upstream.
func (g *generation) poolConfig(from *config.Upstream) upstream.Config {
	c := upstream.Config{
		Name:                from.Name,
		Echo:                from.Echo,
		Pseudonym:           g.via,
		Groups:              g.groups,
		ConnectTimeout:      from.Timeouts.Connect,
		TLSHandshakeTimeout: from.Timeouts.TLS,
		ResponseTimeout:     from.Timeouts.Response,
		BodyTimeout:         from.Timeouts.Idle,
		MaxConnections:      from.MaxConnections,
		Queue:               upstream.Queue{Length: from.Queue.Length, Timeout: from.Queue.Timeout},
		Retries:             from.Retries,
		ResolveInterval:     from.Resolve,
		TLS:                 upstreamTLS(from.TLS),
		Health: upstream.Health{
			FailureThreshold: from.Health.After,
			EjectFor:         from.Health.Rest,
			SlowStart:        from.Health.SlowStart,
			Path:             from.Health.Path,
			Interval:         from.Health.Interval,
			Timeout:          from.Health.Timeout,
			Accepts:          from.Health.Status.Has,
		},
	}
	switch from.Balance {
	case config.BalanceLeastLoaded:
		c.Balance = upstream.LeastLoaded
	case config.BalanceHash:
		c.Balance = upstream.HashBy
	}
	switch from.Protocol {
	case config.ProtocolH2:
		c.Protocol = upstream.HTTP2
	case config.ProtocolH2C:
		c.Protocol = upstream.H2C
	}
	for _, t := range from.Targets {
		c.Targets = append(c.Targets, upstream.Target{URL: t.URL, Weight: t.Weight})
	}
	return c
}

// upstreamTLS returns the TLS configuration for https targets.
func upstreamTLS(from config.UpstreamTLS) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: from.Roots, ServerName: from.ServerName}
	if from.Certificate != nil {
		c.Certificates = []tls.Certificate{*from.Certificate}
	}
	return c
}

// start starts the health checks and name resolution of g's targets.
func (g *generation) start() {
	for _, p := range g.pools {
		p.Start()
	}
}

// retire stops what start has started. Requests in progress continue.
func (g *generation) retire() {
	for _, p := range g.pools {
		p.Retire()
	}
}

// close closes idle connections to upstreams. Requests in progress are not interrupted.
func (g *generation) close() {
	for _, p := range g.pools {
		p.Close()
	}
	for _, t := range g.config.Tokens {
		t.Close()
	}
}

// hashBy returns the value by which the target is selected with hash balancing. It is "" if there
// is none or the request does not have the key; any target may then be selected.
func (g *generation) hashBy(x *exchange) string {
	by := x.route.hashBy()
	if by == nil {
		return ""
	}
	return g.hash(x, by)
}

func (g *generation) hash(x *exchange, by *key.Spec) string {
	if x.readQuery() != nil {
		return ""
	}
	k, err := g.key(x, by)
	if err != nil || k.skip {
		return ""
	}
	return k.Key.String()
}
