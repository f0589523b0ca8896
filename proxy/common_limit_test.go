package proxy

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/filetest"
)

const commonFile = `
limits:
  account: {key: client_ip, rate: 3/1h}
  backoff: {key: client_ip, cooldown: [1h], reset_on: {route: verify}}
  spare: {key: client_ip, rate: 1/1h, count: {status: [4xx]}}
routes:
  - {name: a, match: {path: /a}, respond: {status: 200}, limits: account}
  - {name: b, match: {path: /b}, respond: {status: 200}, limits: [account, {name: own, key: client_ip, rate: 100/1h}]}
  - {name: quiet, match: {path: /quiet}, respond: {status: 200}, mode: shadow, limits: account}
  - {name: off, match: {path: /off}, respond: {status: 200}, mode: "off", limits: account}
  - {name: call, match: {path: /call}, respond: {status: 200}, limits: backoff}
  - {name: text, match: {path: /text}, respond: {status: 200}, limits: backoff}
  - {name: verify, match: {path: /verify, methods: [POST]}, respond: {status: 200}, limits: [{name: v, key: client_ip, rate: 100/1h}]}
  - {name: good, match: {path: /good}, respond: {status: 200}, limits: spare}
  - {name: bad, match: {path: /bad}, respond: {status: 400}, limits: spare}
`

// The mode of a route applies to its own requests: in shadow mode they are counted and pass, with mode off
// they are not counted. A response resets the count of all routes.
func TestCommonLimit_PerRoute(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, commonFile, use)
		w.sends(200, "GET", "/off")
		w.sends(200, "GET", "/quiet")
		w.sends(200, "GET", "/a")
		w.sends(200, "GET", "/b")
		w.sends(429, "GET", "/a")
		w.sends(200, "GET", "/quiet")

		w.sends(200, "GET", "/call")
		w.sends(429, "GET", "/text")
		w.sends(200, "POST", "/verify")
		w.sends(200, "GET", "/text")

		w.sends(200, "GET", "/good") // is not counted
		w.sends(400, "GET", "/bad")
		w.sends(429, "GET", "/good")
	})
}

// What operators give is given once, whatever the number of routes.
func TestCommonLimit_IsChangedOnce(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, commonFile, use)
		w.sendsAll(times(3, 200), "GET", "/a")
		w.changes(view.KeyChange{Action: view.KeyGrant, Permits: 1}, "client_ip=192.0.2.1", "%account")
		w.sends(200, "GET", "/b")
		w.sends(429, "GET", "/a")
		s, err := w.standing("client_ip=192.0.2.1", "@b", "%account")
		if err != nil || len(s.Limits) != 1 || s.Limits[0].Route != "" || s.Limits[0].Windows[0].Used != 3 {
			t.Errorf("%+v, %v; want the limit once, without a route, with 3 used", s.Limits, err)
		}
	})
}

// A replay counts it once as well, and shows it once.
func TestReplay_CommonLimitOnce(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	var all []LoggedRequest
	for i, target := range []string{"/a", "/b", "/a", "/b", "/a"} {
		all = append(all, LoggedRequest{At: at.Add(time.Duration(i) * time.Second), Method: "GET", Target: target, Client: netip.MustParseAddr("192.0.2.1")})
	}
	got := replay(t, commonFile, all...)
	common := got.Routes[len(got.Routes)-1]
	if len(got.Routes) != 3 || common.Name != "" || len(common.Limits) != 1 || len(got.Routes[0].Limits) != 0 || len(got.Routes[1].Limits) != 1 {
		t.Fatalf("routes are %+v; want a without limits, b with its own, and those of several routes", got.Routes)
	}
	if l := common.Limits[0]; l.Name != "account" || l.Passed != 3 || l.Refused != 2 || !slices.Equal(l.Routes, []string{"a", "b", "quiet", "off"}) || len(l.Top) != 1 {
		t.Errorf("%+v; want 3 passed and 2 refused of two routes together", l)
	}
}

// A limit of several routes with plans, whose permits another route returns: the rates are those of the plan on each
// route, and what is returned is returned for all of them.
func TestCommonLimit_WithPlansAndReturns(t *testing.T) {
	list := filepath.Join(t.TempDir(), "plans.txt")
	filetest.Write(t, "ann=pro\n", list)
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, `
keys: {user: "header:X-User", phone: "header:X-Phone"}
limits: {quota: {key: user, rate: 2/1h, plan: {list: '`+list+`'}, plans: {pro: 4/1h}, return_on: {route: verify, key: phone}}}
routes:
  - {name: a, match: {path: /a}, respond: {status: 200}, limits: quota}
  - {name: b, match: {path: /b}, respond: {status: 200}, limits: [quota, {name: own, key: user, rate: 100/1h}]}
  - {name: verify, match: {path: /verify, methods: [POST]}, respond: {status: 200}, limits: [{name: v, key: phone, rate: 100/1h}]}
`, use)
		for user, n := range map[string]int{"ann": 4, "bob": 2} {
			for i := range n {
				w.sends(200, "GET", []string{"/a", "/b"}[i%2], "X-User: "+user, "X-Phone: "+user+fmt.Sprint(i/2))
			}
			w.sends(429, "GET", "/a", "X-User: "+user, "X-Phone: x")
			w.sends(429, "GET", "/b", "X-User: "+user, "X-Phone: x")
			w.sends(200, "POST", "/verify", "X-Phone: "+user+"0") // one request on each route
			w.sends(200, "GET", "/b", "X-User: "+user, "X-Phone: x")
			w.sends(200, "GET", "/a", "X-User: "+user, "X-Phone: x")
			w.sends(429, "GET", "/b", "X-User: "+user, "X-Phone: x")
		}
		l := w.stands("user=ann")[".quota"]
		if l.Plan != "pro" || len(l.Windows) != 1 || l.Windows[0].Rate != "4/1h" || l.Windows[0].Used != 4 {
			t.Errorf("%+v; want the limit once, with its plan and 4 used", l)
		}
	})
}
