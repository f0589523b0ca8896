package node

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy"
)

// A target that stays down is one warning, and another when it is up again.
func TestTargets_EachChangeIsOneWarning(t *testing.T) {
	var out bytes.Buffer
	log := zerolog.New(&out).Level(zerolog.WarnLevel)
	a := proxy.TargetDown{TargetName: proxy.TargetName{Upstream: "sms", Target: "http://a"}, FailedConnects: 1}
	b := proxy.TargetDown{TargetName: proxy.TargetName{Upstream: "sms", Target: "http://b"}, FailedChecks: 3}
	more := a
	more.FailedConnects = 7
	known := downTargets{}
	for _, step := range []struct {
		now  []proxy.TargetDown
		want []string
	}{
		{nil, nil},
		{[]proxy.TargetDown{a}, []string{`"target":"http://a"`, `"failed_connects":1`, "target down"}},
		{[]proxy.TargetDown{more}, nil},
		{[]proxy.TargetDown{more, b}, []string{`"target":"http://b"`, `"failed_checks":3`, "target down"}},
		{[]proxy.TargetDown{b}, []string{`"target":"http://a"`, "target up"}},
		{[]proxy.TargetDown{a, b}, []string{`"target":"http://a"`, "target down"}},
	} {
		out.Reset()
		known = known.logChanges(log, step.now)
		if lines := strings.Count(out.String(), "\n"); lines != min(len(step.want), 1) {
			t.Errorf("%v: %d lines: %s", step.now, lines, out.String())
		}
		for _, want := range step.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%v: %s; want %s", step.now, out.String(), want)
			}
		}
	}
}
