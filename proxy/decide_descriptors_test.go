package proxy

import (
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/decisions"
	routing "github.com/weir-proxy/weir/proxy/route"
)

// describedYAML has routes that Envoy asks about.
const describedYAML = `
keys: {phone: "descriptor:phone"}
routes:
  - {name: sms, match: {domain: edge, descriptor: {phone: "*"}}, refund_on: {status: [5xx]}, limits: [{name: phone, key: phone, rate: 2/1h}]}
`

// describes asks about descriptors of the domain edge, each with one entry, and wants this status.
func (p *testProxy) describes(status int, entry string, values ...string) (got DescriptorAnswer) {
	p.Helper()
	q := &DescriptorQuestion{Listener: "decide/test", Domain: "edge", Method: "POST", Path: "/", Deadline: time.Now().Add(time.Minute), Hold: time.Minute}
	for _, value := range values {
		q.Descriptors, q.Hits = append(q.Descriptors, routing.Descriptor{{Key: entry, Value: value}}), append(q.Hits, 1)
	}
	p.DecideDescriptors(p.Context(), q, func(a *DescriptorAnswer) { got = *a })
	if got.Response.Status != status || got.Allowed != (status == 200) {
		p.Errorf("%s %v: allowed %v, %d; want %d", entry, values, got.Allowed, got.Response.Status, status)
	}
	return got
}

func TestDecideDescriptors_AreRecordedWithoutAClient(t *testing.T) {
	for _, client := range []string{"full", "network", "hashed", "none"} {
		t.Run(client, func(t *testing.T) {
			p := newProxy(t, "privacy: {log_client: "+client+"}\n"+describedYAML)
			p.describes(200, "phone", "1", "2")
			p.describes(200, "phone", "1")
			p.describes(429, "phone", "2", "1")
			lines := p.lines("request")
			if len(lines) != 4 || lines[0]["listener"] != "decide/test" || lines[3]["status"] != 429.0 || lines[3]["limit"] != "phone" {
				t.Fatalf("log has %v; want a line for each descriptor, and of a refused call for those that are refused", lines)
			}
			for _, line := range lines {
				if who, has := line["client"]; has {
					t.Errorf("the client is %q; nobody knows it", who)
				}
			}
			all := p.Decisions(decisions.Query{N: 10})
			if len(all) != 4 || all[0].Listener != "decide/test" || all[0].Outcome != "refused" || all[0].Route != "sms" {
				t.Errorf("decisions are %+v", all)
			}
		})
	}
}
