package node

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A reloadStatus is the result of the last reload and of the last push. After a refusal the status
// remains refused until a reload succeeds, even if only by undoing the change, and after that of a pushed
// configuration until another push succeeds: until then this node does not serve the configuration that
// it should.
type reloadStatus struct {
	successful, succeededAt prometheus.Gauge

	mu      sync.Mutex // guards what follows
	refused time.Time  // zero if the last reload succeeded
	pushed  time.Time  // when a pushed configuration was refused; zero if the last push succeeded
}

// newReloadStatus returns the status of a node that has just loaded its configuration.
func newReloadStatus(r prometheus.Registerer) *reloadStatus {
	s := &reloadStatus{
		successful: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_config_last_reload_successful", Help: "1 if the last reload succeeded, 0 if it was refused.",
		}),
		succeededAt: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_config_last_reload_success_timestamp_seconds", Help: "Time of the last successful reload, in seconds since 1970.",
		}),
	}
	r.MustRegister(s.successful, s.succeededAt)
	s.record(nil)
	return s
}

// record records the result of a reload.
func (s *reloadStatus) record(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.refuse(&s.refused)
		return
	}
	s.refused = time.Time{}
	if s.pushed.IsZero() {
		s.successful.Set(1)
		s.succeededAt.SetToCurrentTime()
	}
}

// recordPush records the result of a push, which replaces what was reloaded before.
func (s *reloadStatus) recordPush(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.refuse(&s.pushed)
		return
	}
	s.refused, s.pushed = time.Time{}, time.Time{}
	s.successful.Set(1)
	s.succeededAt.SetToCurrentTime()
}

// refuse keeps the time of the first refusal.
func (s *reloadStatus) refuse(since *time.Time) {
	if since.IsZero() {
		*since = time.Now()
	}
	s.successful.Set(0)
}

// status returns the status for /readyz, which is public: it reveals nothing about the files.
func (s *reloadStatus) status(generation int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := s.pushed
	if since.IsZero() {
		since = s.refused
	}
	if since.IsZero() {
		return "ok"
	}
	return fmt.Sprintf("refused since %s; generation %d is served on, and the log says what is wrong", since.UTC().Format(time.RFC3339), generation)
}
