package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
)

// A bootConfig is the configuration served at the start.
type bootConfig struct {
	config *config.Config
	number int64 // its generation; 0 if the other nodes could not be asked
}

// boot determines the configuration to serve first: the one pushed to all nodes, otherwise the
// file. If Redis is unreachable, that is logged and is not an error: the pushed configuration is
// then read from disk if it was kept there, otherwise the file is used, and limits follow
// on_store_failure. It is an error if the Redis version is too old, or if the pushed configuration
// cannot be served on this machine: a node must not serve anything else than the others.
func (s store) boot(ctx context.Context, o *configSource) (bootConfig, error) {
	b := bootConfig{config: o.machine}
	if s.cluster == nil {
		return b, nil
	}
	_, err := s.check(ctx)
	if errors.Is(err, redisstore.ErrVersion) {
		return b, err
	}
	var e cluster.Entry
	if err == nil && o.pushable() {
		e, err = s.cluster.Pushed(ctx)
	}
	if err == nil && o.pushable() && e.Generation == 0 {
		e, err = s.lostByRedis(ctx, o)
	}
	if err == nil && e.Generation > 0 {
		return s.bootPushed(o, e)
	}
	if err == nil {
		err = s.cluster.Agree(ctx, o.machine, func(number int64) { b.number = number })
	}
	if err == nil {
		return b, nil
	}
	logUnusable(o.log.With().Strs("addrs", o.machine.Redis.Addrs).Logger(), err)
	b, err = o.bootKept()
	s.cluster.Assume(b.config.Hash, max(b.number, 1))
	return b, err
}

// lostByRedis returns the pushed configuration if it is kept on disk but Redis has lost it. The first
// heartbeat restores it in Redis. Its Generation is 0 if there is none.
func (s store) lostByRedis(ctx context.Context, o *configSource) (cluster.Entry, error) {
	k, err := o.readKept()
	if err != nil {
		o.log.Warn().Err(err).Msg("pushed config unknown; serving the file")
		return cluster.Entry{}, nil
	}
	number, err := s.cluster.Number(ctx)
	if err != nil || k.Generation == 0 || number >= k.Generation {
		return cluster.Entry{}, err
	}
	o.log.Warn().Int64("generation", k.Generation).Msg("redis lost the pushed config; serving it from disk and publishing it again")
	return k, nil
}

// bootKept returns the configuration to serve first without Redis.
func (s *configSource) bootKept() (bootConfig, error) {
	b := bootConfig{config: s.machine}
	k, err := s.readKept()
	if err != nil {
		s.log.Warn().Err(err).Msg("pushed config unknown; serving the file")
	}
	if k.Generation == 0 {
		return b, nil
	}
	c, err := bundle.Unpack(s.machine, k.Bundle)
	if err != nil {
		return b, fmt.Errorf("config kept in %s: %w", s.machine.Reload.Keep, err)
	}
	s.set(k.Bundle)
	s.log.Info().Int64("generation", k.Generation).Str("hash", c.Hash).Msg("serving last pushed config from disk")
	return bootConfig{c, k.Generation}, nil
}

// bootPushed returns the configuration that was pushed to all nodes.
func (s store) bootPushed(o *configSource, e cluster.Entry) (bootConfig, error) {
	c, err := (*config.Config)(nil), e.Unreadable
	if err == nil {
		c, err = bundle.Unpack(o.machine, e.Bundle)
	}
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
