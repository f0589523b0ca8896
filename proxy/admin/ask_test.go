package admin

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func tells(v any, err error) func(context.Context) (any, error) {
	return func(context.Context) (any, error) { return v, err }
}

func TestAsk_TellsWhatItIsTold(t *testing.T) {
	o := Options{Leader: tells("a leader", nil)}
	if w := asked(o, "GET", "/api/v1/leader"); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `"a leader"` {
		t.Errorf("leader = %d %s", w.Code, w.Body)
	}
	if w := asked(o, "POST", "/api/v1/leader"); w.Code != 405 {
		t.Errorf("POST leader = %d; want 405", w.Code)
	}
	o = Options{Leader: tells(nil, errors.New("redis is away"))}
	if w := asked(o, "GET", "/api/v1/leader"); w.Code != 503 || !strings.Contains(w.Body.String(), "redis is away") {
		t.Errorf("leader that cannot be told = %d %s; want 503 and why", w.Code, w.Body)
	}
}

func TestAsk_WantsTheToken(t *testing.T) {
	o := Options{Token: "secret", Leader: tells(1, nil), Nodes: tells(1, nil),
		Statistics: func(context.Context, int) (any, error) { return 1, nil }}
	for _, path := range []string{"leader", "nodes", "statistics"} {
		if w := asked(o, "GET", "/api/v1/"+path); w.Code != 401 {
			t.Errorf("%s without the token = %d; want 401", path, w.Code)
		}
		if w := asked(o, "GET", "/api/v1/"+path, "Authorization: Bearer secret"); w.Code != 200 {
			t.Errorf("%s with the token = %d; want 200", path, w.Code)
		}
	}
}

func TestAsk_Minutes(t *testing.T) {
	var got int
	o := Options{Statistics: func(_ context.Context, n int) (any, error) { got = n; return nil, nil }}
	for _, c := range []struct {
		query      string
		code, want int
	}{
		{"", 200, 60}, {"?minutes=1", 200, 1}, {"?minutes=1440", 200, 1440},
		{"?minutes=0", 400, 0}, {"?minutes=1441", 400, 0}, {"?minutes=-1", 400, 0}, {"?minutes=1h", 400, 0},
	} {
		got = 0
		w := asked(o, "GET", "/api/v1/statistics"+c.query)
		if w.Code != c.code || got != c.want {
			t.Errorf("statistics%s = %d for %d minutes; want %d for %d", c.query, w.Code, got, c.code, c.want)
		}
		if c.code == 400 && !strings.Contains(w.Body.String(), "write 1 to 1440") {
			t.Errorf("statistics%s does not say what to write: %s", c.query, w.Body)
		}
	}
}
