package cli

import (
	"context"
	"errors"
	"os"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
)

// reload reads the configuration anew and logs what came of it.
func (s *service) reload(ctx context.Context) (any, error) {
	s.systemd.reloading()
	defer s.systemd.ready(s.proxy)
	report, err := s.proxy.Reload(ctx)
	s.standing.note(err)
	s.report(report, err)
	if err != nil {
		return nil, err
	}
	return report, nil
}

// rejoin agrees with the other nodes on what is served, and logs what came of it.
func (s *service) rejoin(ctx context.Context) { s.report(s.proxy.Rejoin(ctx)) }

// report logs what came of a reload.
func (s *service) report(report proxy.Report, err error) {
	var problems config.Problems
	switch {
	case errors.As(err, &problems):
		for _, p := range problems {
			s.log.Error().Str("file", p.File).Int("line", p.Line).Int("column", p.Column).Str("problem", p.String()).
				Msg("reload refused")
		}
		return
	case err != nil:
		s.log.Error().Err(err).Msg("reload refused")
		return
	case report.Alone != nil:
		s.log.Warn().Err(report.Alone).Msg("reloaded without the other nodes")
	}
	if report.Unready != nil {
		s.log.Warn().Err(report.Unready).Msg("tokens are refused for now")
	}
	for _, warning := range report.Warnings {
		s.log.Warn().Str("at", warning.Position.String()).Str("problem", warning.String()).Msg("config warning")
	}
	if report.Changed {
		s.log.Info().Int64("generation", report.Generation).Str("hash", report.Hash).
			Dur("took_ms", report.Took).Msg("reloaded")
	}
}

// watch reloads when the files change.
func (s *service) watch(ctx context.Context) {
	err := s.proxy.Watch(ctx, func(ctx context.Context) { s.reload(ctx) })
	if err != nil {
		s.log.Error().Err(err).Msg("cannot watch the config file; send SIGHUP after a change")
	}
}

// signals reloads when the process is told to.
func (s *service) signals(ctx context.Context, reload <-chan os.Signal) {
	for {
		select {
		case <-reload:
			s.reload(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// ready tells what this weir can do now.
func (s *service) ready(ctx context.Context) admin.Readiness {
	r := admin.Readiness{Ready: !s.draining.Load(), Checks: map[string]string{"config": "ok", "store": "ok"}}
	number, _ := s.proxy.Serving()
	r.Checks["config"] = s.standing.check(number)
	if err := s.shared.check(ctx); err != nil {
		r.Checks["store"] = err.Error()
	}
	if !r.Ready {
		r.Checks["draining"] = "requests under way are ending"
	}
	return r
}
