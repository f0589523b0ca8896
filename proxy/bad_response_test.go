package proxy

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/upstream"
	"github.com/weir-proxy/weir/test/logtest"
)

// Each response that breaks a rule is counted, and one a minute of each target is logged.
func TestBadResponses_AreCountedAndLoggedOnceAMinute(t *testing.T) {
	var log logtest.Log
	b := newBadResponses(zerolog.New(&log), prometheus.NewRegistry())
	now := time.Unix(1_000_000, 0)
	fail := func(target string, kind upstream.ResultKind, err error) {
		b.record("api", &upstream.Result{Target: target, Kind: kind, Err: fmt.Errorf("forward request: %w", err)}, now)
	}
	for range 3 {
		fail("a", upstream.BadResponse, http1.ErrStatusLine)
	}
	fail("a", upstream.ResponseTruncated, http1.ErrChunk)
	fail("b", upstream.BadResponse, http1.ErrStatusLine)
	fail("c", upstream.ResponseTruncated, http1.ErrTruncated) // a connection that ended breaks no rule
	fail("c", upstream.ConnectFailed, http1.ErrStatusLine)
	now = now.Add(faultInterval)
	fail("a", upstream.BadResponse, http1.ErrFoldedLine)
	for reason, want := range map[string]float64{"status_line_not_valid": 3, "chunk_not_valid": 1, "folded_field_line": 1} {
		if got := testutil.ToFloat64(b.total.WithLabelValues("api", "a", reason)); got != want {
			t.Errorf("%s: %v; want %v", reason, got, want)
		}
	}
	var lines []string
	for _, line := range log.Lines() {
		lines = append(lines, fmt.Sprint(line["target"], ": ", line["reason"]))
	}
	if got, want := fmt.Sprint(lines), "[a: status line not valid b: status line not valid a: folded field line]"; got != want {
		t.Errorf("logged %s; want %s", got, want)
	}
}
