package respond

import (
	"slices"
	"testing"
)

func TestStatic(t *testing.T) {
	own := []Field{{"X-A", "1"}}
	for _, c := range []struct {
		status int
		body   string
		want   []Field
	}{
		{200, "ab", []Field{{"X-A", "1"}, {"Content-Type", "text/plain"}, {"Content-Length", "2"}}},
		{200, "", []Field{{"X-A", "1"}, {"Content-Length", "0"}}},
		{204, "ab", []Field{{"X-A", "1"}}},
		{304, "", []Field{{"X-A", "1"}}},
		{205, "ab", []Field{{"X-A", "1"}, {"Content-Length", "0"}}},
	} {
		got := Static(c.status, "text/plain", c.body, own)
		if got.Status != c.status || !slices.Equal(got.Fields, c.want) || len(got.Body) > 0 && string(got.Body) != c.body || c.status != 200 && len(got.Body) > 0 {
			t.Errorf("%d with %q: %+v, want fields %v", c.status, c.body, got, c.want)
		}
	}
}

func TestRedirect_NothingEndsTheURL(t *testing.T) {
	got := Redirect(308, "https://a/b c\"<>\\#ä%41\r\nX: y?{z}")
	if want := "https://a/b%20c%22%3C%3E%5C#%C3%A4%41%0D%0AX:%20y?{z}"; got.Field("Location") != want || got.Status != 308 || got.Field("Content-Length") != "0" {
		t.Errorf("got %+v, want Location %s", got, want)
	}
}

func TestAnswer_WithLeavesTheOriginalAlone(t *testing.T) {
	a := Static(200, "", "", nil)
	a.Fields = slices.Grow(a.Fields, 10)
	q := &RateLimitFields{}
	one, two := a.WithRateLimitFields(q, Verdict{Decision: nil}), a
	one.Fields = append(one.Fields, Field{"X", "1"})
	if len(two.Fields) != 1 || len(a.Fields[:2]) == 2 && a.Fields[:2][1] == (Field{"X", "1"}) {
		t.Errorf("the answer that is shared has %v", a.Fields[:2])
	}
}
