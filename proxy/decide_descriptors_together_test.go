package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	routing "github.com/weir-proxy/weir/proxy/route"
)

// Descriptors of one call that together are more than a key may ever have are refused, and take nothing; in shadow mode it
// is recorded that they would be.
func TestDecideDescriptors_TogetherMoreThanTheMaximum(t *testing.T) {
	const file = describedYAML + `
  - {name: shadow, match: {domain: edge, descriptor: {shadow: "*"}}, limits: [{name: shadow, key: "descriptor:shadow", rate: 2/1h, mode: shadow}, {name: other, key: "descriptor:shadow", rate: 20/1h}]}
  - {name: distinct, match: {domain: edge, descriptor: {of: "*", to: "*"}}, limits: [{name: distinct, key: "descriptor:of", distinct: "descriptor:to", rate: 2/1h}]}
`
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		p := newProxy(t, file, use)
		refused := p.describes(400, "user=ann", "phone=1", "phone=1", "phone=1")
		if refused.Statuses[0].Refused || !refused.Statuses[3].Refused {
			t.Errorf("statuses are %+v; want the last refused", refused.Statuses)
		}
		if left := p.describes(200, "user=ann").Statuses[0].Remaining; left != 8 {
			t.Errorf("%d left of 9 after one; want 8", left)
		}
		p.describes(200, "phone=1", "phone=1")
		p.describes(429, "phone=1")

		for range 2 {
			if got := p.describes(200, "shadow=a", "shadow=a", "shadow=a"); !got.Statuses[2].Shadow {
				t.Errorf("statuses in shadow mode are %+v", got.Statuses)
			}
		}
		q := &DescriptorQuestion{Domain: "edge", Deadline: time.Now().Add(time.Minute), Descriptors: []AskedDescriptor{{Descriptor: routing.Descriptor{{Key: "shadow", Value: "a"}}, Hits: 3}}}
		p.DecideDescriptors(t.Context(), q, func(a *DescriptorAnswer) {
			if s := a.Statuses[0]; !a.Allowed || !s.Shadow || s.Remaining != 11 {
				t.Errorf("three hits in shadow mode: allowed %v, %+v; want 11 left of 20", a.Allowed, s)
			}
		})

		p.describes(400, "of=a to=1", "of=a to=2") // one claim has one value
		p.describes(200, "of=a to=1", "of=a to=1")
		p.describes(200, "of=a to=2")
		p.describes(429, "of=a to=3")
	})
}

// A call with more rates than one decision may have is refused as the peer's mistake. The log says so, with the number,
// once a minute, however much of the access log is written.
func TestDecideDescriptors_TooManyAreLogged(t *testing.T) {
	for _, access := range []string{"json", "none"} {
		p := newProxy(t, describedYAML+"access_log: {format: "+access+"}\n")
		descriptors := make([]string, limiter.MaxClaims)
		for i := range descriptors {
			descriptors[i] = fmt.Sprint("phone=", i)
		}
		p.describes(200, descriptors...)
		tooMany := append(descriptors, "user=ann")
		for range 3 {
			if got := p.describes(400, tooMany...); !strings.Contains(string(got.Response.Body), "129") {
				t.Errorf("the peer is told %s", got.Response.Body)
			}
		}
		lines := p.lines("call with too many descriptors refused")
		if len(lines) != 1 || lines[0]["descriptors"] != 129.0 || !strings.Contains(fmt.Sprint(lines[0]["error"]), "129 claims") {
			t.Errorf("%s: the log says %v", access, lines)
		}
		p.describes(429, "phone=1", "phone=1") // one was taken
		p.describes(200, "user=ann")
	}
}
