package route

import (
	"errors"
	"slices"
	"testing"
)

// A query decides only where it can be read in one way.
func TestQuery_Decides(t *testing.T) {
	tb := NewTable([]Entry[string]{
		{Pattern{Path: "/a", Query: map[string]string{"mode": "test"}}, "test"},
		{Pattern{Path: "/a"}, "plain"},
		{Pattern{Path: "/b", Query: map[string]string{"mode": "*"}, IgnoresForms: true}, "forms"},
	})
	for _, c := range []struct {
		path string
		testMessage
		want string
		err  error
	}{
		{"/a", testMessage{query: "mode=test"}, "test", nil},
		{"/a", testMessage{query: "mode=live"}, "plain", nil},
		{"/a", testMessage{}, "plain", nil},
		{"/a", testMessage{query: "mode=test&mode=live"}, "", ErrQuery},
		{"/a", testMessage{query: "mode[]=live"}, "", ErrQuery},
		{"/a", testMessage{query: "mode=%zz"}, "", ErrQuery},
		{"/a", testMessage{query: "a;b"}, "", ErrQuery},
		{"/a", testMessage{query: "mode=test", form: true}, "", ErrQuery},
		{"/b", testMessage{query: "mode=test", form: true}, "forms", nil},
		{"/b", testMessage{}, "", ErrNone},
	} {
		q := &Request{RawTarget: RawTarget{Method: "GET"}, Target: Target{Host: "a", Path: c.path}, Message: &c.testMessage}
		if found, err := tb.Find(q); found != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s?%s: %q, %v; want %q, %v", c.path, c.query, found, err, c.want, c.err)
		}
	}
}

func TestMisses_SaysWhatIsWanted(t *testing.T) {
	tb := NewTable([]Entry[int]{{Pattern: Pattern{
		Host: "*.example.com", Methods: []string{"PUT", "POST"}, Path: "/u/{id:[0-9]+}", Headers: map[string]string{"x-app": "beta"}, Query: map[string]string{"mode": "*"},
	}}})
	q := newRequest("GET", "example.com", "/u/a")
	want := []string{"host: want *.example.com", "path: want /u/{id:[0-9]+}", "method: want PUT or POST", "header: want X-App: beta", "query: want mode"}
	if got := tb.Mismatches(0, q); !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
	q = newRequest("PUT", "a.example.com", "/u/1", "X-App=beta")
	q.Message.(*testMessage).query = "mode=%zz"
	if got, want := tb.Mismatches(0, q), []string{"query: it can be read in two ways"}; !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
	q.Message.(*testMessage).query = "mode="
	if got := tb.Mismatches(0, q); len(got) > 0 {
		t.Errorf("%q; want nothing", got)
	}
}
