package proxy

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// faultInterval is how often the invalid responses of one target are logged, or calls with too many descriptors.
const faultInterval = time.Minute

// badResponses counts the responses of upstreams that are not valid HTTP by the rule that they
// break, and logs them once a minute for each target.
type badResponses struct {
	log   zerolog.Logger
	total *prometheus.CounterVec

	mu     sync.Mutex // guards what follows
	logged map[string]time.Time
}

func newBadResponses(log zerolog.Logger, r prometheus.Registerer) *badResponses {
	b := &badResponses{log: log, logged: map[string]time.Time{}, total: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_upstream_bad_responses_total", Help: "Responses of upstreams that are not valid HTTP, by the rule that they break.",
	}, []string{"upstream", "target", "reason"})}
	r.MustRegister(b.total)
	return b
}

// record counts the result of a forwarded request if the response broke a rule of HTTP.
func (b *badResponses) record(pool string, result *upstream.Result, now time.Time) {
	var rule *http1.Error
	switch result.Kind {
	case upstream.BadResponse, upstream.ResponseTruncated:
		if !errors.As(result.Err, &rule) || errors.Is(rule, http1.ErrTruncated) {
			return
		}
	default:
		return
	}
	b.total.WithLabelValues(pool, result.Target, strings.ReplaceAll(rule.Error(), " ", "_")).Inc()
	if b.due(pool+" "+result.Target, now) {
		b.log.Warn().Str("upstream", pool).Str("target", result.Target).Str("reason", rule.Error()).Msg("upstream response refused")
	}
}

// due reports whether to log a response of target at now.
func (b *badResponses) due(target string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last, ok := b.logged[target]; ok && now.Sub(last) < faultInterval {
		return false
	}
	b.logged[target] = now
	return true
}
