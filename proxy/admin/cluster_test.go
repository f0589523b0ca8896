package admin

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/view"
)

func returns[T any](v T, err error) func(context.Context) (T, error) {
	return func(context.Context) (T, error) { return v, err }
}

func TestCluster_SendsWhatItIsGiven(t *testing.T) {
	o := Options{Leader: returns(view.Leadership{Self: "a", Node: "b", Tasks: []view.TaskRun{}}, nil)}
	if w := adminRequest(o, "GET", "/api/v1/leader"); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"self":"a","node":"b","tasks":[]}` {
		t.Errorf("leader = %d %s", w.Code, w.Body)
	}
	if w := adminRequest(o, "POST", "/api/v1/leader"); w.Code != 405 {
		t.Errorf("POST leader = %d; want 405", w.Code)
	}
	o = Options{Leader: returns(view.Leadership{}, errors.New("redis is away"))}
	if w := adminRequest(o, "GET", "/api/v1/leader"); w.Code != 503 || !strings.Contains(w.Body.String(), "redis is away") {
		t.Errorf("leader that cannot be told = %d %s; want 503 and why", w.Code, w.Body)
	}
}

func TestCluster_WantsTheToken(t *testing.T) {
	o := Options{Token: "secret", Leader: returns(view.Leadership{}, nil), Nodes: returns(Nodes{}, nil),
		Statistics: func(context.Context, int) (view.Statistics, error) { return view.Statistics{}, nil }}
	for _, path := range []string{"leader", "nodes", "statistics"} {
		if w := adminRequest(o, "GET", "/api/v1/"+path); w.Code != 401 {
			t.Errorf("%s without the token = %d; want 401", path, w.Code)
		}
		if w := adminRequest(o, "GET", "/api/v1/"+path, "Authorization: Bearer secret"); w.Code != 200 {
			t.Errorf("%s with the token = %d; want 200", path, w.Code)
		}
	}
}

func TestCluster_Minutes(t *testing.T) {
	var got int
	o := Options{Statistics: func(_ context.Context, n int) (view.Statistics, error) { got = n; return view.Statistics{}, nil }}
	for _, c := range []struct {
		query      string
		code, want int
	}{
		{"", 200, 60}, {"?minutes=1", 200, 1}, {"?minutes=1440", 200, 1440},
		{"?minutes=0", 400, 0}, {"?minutes=1441", 400, 0}, {"?minutes=-1", 400, 0}, {"?minutes=1h", 400, 0},
	} {
		got = 0
		w := adminRequest(o, "GET", "/api/v1/statistics"+c.query)
		if w.Code != c.code || got != c.want {
			t.Errorf("statistics%s = %d for %d minutes; want %d for %d", c.query, w.Code, got, c.code, c.want)
		}
		if c.code == 400 && !strings.Contains(w.Body.String(), "write 1 to 1440") {
			t.Errorf("statistics%s does not say what to write: %s", c.query, w.Body)
		}
	}
}
