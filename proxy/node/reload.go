package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"

	"github.com/fsnotify/fsnotify"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
)

// reload reloads the configuration and logs the result.
func (n *Node) reload(ctx context.Context) (admin.Reloaded, error) {
	n.systemd.reloading()
	defer n.systemd.ready(n.proxy)
	report, err := n.proxy.Reload(ctx)
	n.reloads.record(err)
	n.report(report, err)
	return admin.Reloaded{Generation: report.Generation, Hash: report.Hash, Changed: report.Changed}, err
}

// rejoin agrees with the other nodes on the current configuration, and logs the result.
func (n *Node) rejoin(ctx context.Context) { n.report(n.proxy.Rejoin(ctx)) }

// report logs the result of a reload.
func (n *Node) report(report proxy.Report, err error) {
	if report.Changed || err != nil {
		n.publishReload(report.Generation, report.Hash, err)
	}
	var problems config.Problems
	switch {
	case errors.As(err, &problems):
		for _, p := range problems {
			n.log.Error().Str("file", p.File).Int("line", p.Line).Int("column", p.Column).Str("problem", p.String()).
				Msg("reload refused")
		}
		return
	case err != nil:
		n.log.Error().Err(err).Msg("reload refused")
		return
	case report.AgreeErr != nil:
		n.log.Warn().Err(report.AgreeErr).Msg("reloaded without the other nodes")
	}
	if report.Unready != nil {
		n.log.Warn().Err(report.Unready).Msg("tokens are refused for now")
	}
	for _, warning := range report.Warnings {
		n.log.Warn().Str("at", warning.Position.String()).Str("problem", warning.String()).Msg("config warning")
	}
	if report.Changed {
		n.log.Info().Int64("generation", report.Generation).Str("hash", report.Hash).
			Dur("took_ms", report.Took).Msg("reloaded")
	}
}

// watch reloads when files change.
func (n *Node) watch(ctx context.Context) {
	look := func(w *fsnotify.Watcher) [sha256.Size]byte {
		_, served := n.proxy.Serving()
		return hashFiles(w, configFiles(served, w))
	}
	err := watch(ctx, look, func(ctx context.Context) { n.reload(ctx) })
	if err != nil {
		n.log.Error().Err(err).Msg("cannot watch the config file; send SIGHUP after a change")
	}
}

// reloadOnSignals reloads at each signal.
func (n *Node) reloadOnSignals(ctx context.Context, reload <-chan os.Signal) {
	for {
		select {
		case <-reload:
			n.reload(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// ready returns the readiness of this node.
func (n *Node) ready(ctx context.Context) admin.Readiness {
	r := admin.Readiness{Ready: !n.draining.Load(), Checks: map[string]string{"config": "ok", "store": "ok"}}
	number, _ := n.proxy.Serving()
	r.Checks["config"] = n.reloads.status(number)
	warning, err := n.store.check(ctx)
	if warning != "" {
		r.Checks["eviction"] = warning
	}
	if err != nil {
		r.Checks["store"] = proxy.ErrorText(err)
	}
	if !r.Ready {
		r.Checks["draining"] = "requests in progress are ending"
	}
	return r
}
