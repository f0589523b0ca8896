package cli

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A standing is what came of the last reload, or of what was pushed last. A refusal
// stands until a reload goes well, be it by undoing the edit: for so long this weir
// does not serve what it was told to.
type standing struct {
	successful, at prometheus.Gauge

	mu      sync.Mutex // guards what follows
	refused time.Time  // zero while nothing is
}

// newStanding is that of a weir that has just begun with its configuration.
func newStanding(r prometheus.Registerer) *standing {
	s := &standing{
		successful: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_config_last_reload_successful", Help: "1 if what was given last to be served is served, 0 for as long as its refusal stands.",
		}),
		at: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_config_last_reload_success_timestamp_seconds", Help: "When the last reload went well, in seconds since 1970.",
		}),
	}
	r.MustRegister(s.successful, s.at)
	s.note(nil)
	return s
}

// note takes in what came of a reload.
func (s *standing) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.refused = time.Time{}
		s.successful.Set(1)
		s.at.SetToCurrentTime()
	case s.refused.IsZero():
		s.refused = time.Now()
		s.successful.Set(0)
	}
}

// check is what is said on /readyz, where anybody may ask: nothing of the files.
func (s *standing) check(generation int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused.IsZero() {
		return "ok"
	}
	return fmt.Sprintf("refused since %s; generation %d is served on, and the log says what is wrong", s.refused.UTC().Format(time.RFC3339), generation)
}
