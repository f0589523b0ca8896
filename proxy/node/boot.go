package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
)

// A bootConfig is the configuration that is served at start.
type bootConfig struct {
	config *config.Config
	number int64 // its generation; 0 if Redis was unreachable
}

// boot determines the configuration to serve at start: the pushed one, or else the file. If
// Redis is unreachable, which is logged and not an error, it is the local copy of the
// pushed one, or else the file. It is an error if Redis is too old, or if a pushed
// configuration cannot be served here, because all nodes must serve the same.
func (s store) boot(ctx context.Context, o *configSource) (bootConfig, error) {
	b := bootConfig{config: o.own}
	if s.cluster == nil {
		return b, nil
	}
	err := s.check(ctx)
	if errors.Is(err, redisstore.ErrVersion) {
		return b, err
	}
	var e cluster.Entry
	if err == nil && o.pushable() {
		e, err = s.cluster.Pushed(ctx)
	}
	if err == nil && o.pushable() && e.Generation == 0 {
		e, err = s.forgotten(ctx, o)
	}
	if err == nil && e.Generation > 0 {
		return s.pushed(o, e)
	}
	if err == nil {
		err = s.cluster.Agree(ctx, o.own, func(number int64) { b.number = number })
	}
	if err == nil {
		return b, nil
	}
	o.log.Warn().Err(err).Strs("addrs", o.own.Redis.Addrs).Msg("redis unreachable; limits go by on_store_failure")
	b, err = o.kept()
	s.cluster.Assume(b.config.Hash, max(b.number, 1))
	return b, err
}

// forgotten returns the local copy of a pushed configuration that Redis has lost; it is
// restored with the first heartbeat. Its Generation is 0 if there is none.
func (s store) forgotten(ctx context.Context, o *configSource) (cluster.Entry, error) {
	k, err := o.recall()
	if err != nil {
		o.log.Warn().Err(err).Msg("pushed config unknown; serving the file")
		return cluster.Entry{}, nil
	}
	number, err := s.cluster.Number(ctx)
	if err != nil || k.Bundle.Main == "" || number >= k.Generation {
		return cluster.Entry{}, err
	}
	e := k.Entry
	e.Bundle, e.Hash = k.Bundle, k.Bundle.Hash()
	o.log.Warn().Int64("generation", e.Generation).Msg("redis lost the pushed config; serving it from disk and publishing it again")
	return e, nil
}

// kept returns the configuration to serve at start without Redis.
func (o *configSource) kept() (bootConfig, error) {
	b := bootConfig{config: o.own}
	k, err := o.recall()
	if err != nil {
		o.log.Warn().Err(err).Msg("pushed config unknown; serving the file")
	}
	if k.Bundle.Main == "" {
		return b, nil
	}
	c, err := config.Unpack(o.own, k.Bundle)
	if err != nil {
		return b, fmt.Errorf("what was kept in %s: %w", o.own.Reload.Keep, err)
	}
	o.set(k.Bundle)
	o.log.Info().Int64("generation", k.Generation).Str("hash", c.Hash).Msg("serving last pushed config from disk")
	return bootConfig{c, k.Generation}, nil
}

// pushed returns the configuration pushed to all nodes.
func (s store) pushed(o *configSource, e cluster.Entry) (bootConfig, error) {
	c, err := config.Unpack(o.own, e.Bundle)
	if err != nil {
		return bootConfig{}, fmt.Errorf("pushed config of generation %d: %w", e.Generation, err)
	}
	o.set(e.Bundle)
	s.cluster.Adopt(e, c)
	if err := o.keep(e); err != nil {
		o.log.Warn().Err(err).Msg("cannot write reload.keep")
	}
	return bootConfig{c, e.Generation}, nil
}
