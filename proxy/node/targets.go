package node

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy"
)

// watchTargets logs, until ctx is done, when a target of an upstream goes down and when it is up again:
// one warning for each change.
func (n *Node) watchTargets(ctx context.Context) {
	tick := time.NewTicker(connectTimeout)
	defer tick.Stop()
	known := downTargets{}
	for {
		select {
		case <-tick.C:
			known = known.logChanges(n.log, n.proxy.DownTargets())
		case <-ctx.Done():
			return
		}
	}
}

// downTargets are the targets that are down.
type downTargets map[proxy.TargetName]proxy.TargetDown

// logChanges logs the differences between d and the targets that are down now, which it returns.
func (d downTargets) logChanges(log zerolog.Logger, now []proxy.TargetDown) downTargets {
	next := downTargets{}
	for _, t := range now {
		next[t.TargetName] = t
		if _, known := d[t.TargetName]; !known {
			log.Warn().Str("upstream", t.Upstream).Str("target", t.Target).Int("failed_connects", t.FailedConnects).Int("failed_checks", t.FailedChecks).Msg("upstream target down")
		}
	}
	for name := range d {
		if _, down := next[name]; !down {
			log.Warn().Str("upstream", name.Upstream).Str("target", name.Target).Msg("upstream target up")
		}
	}
	return next
}
