package http1

import (
	"reflect"
	"testing"
)

// A head that was reset differs from a new one by the memory of its fields alone.
func TestReset_ClearsEveryField(t *testing.T) {
	limits := Limits{}.withDefaults()
	var q Request
	head := lined("POST http://a:1/b?c HTTP/1.1|Host: a|Connection: close|Content-Length: 3|X_Y: z||")
	if n, err := q.Parse([]byte(head), &limits); n != len(head) || err != nil {
		t.Fatal(n, err)
	}
	var r Response
	head = lined("HTTP/1.1 404 no|Connection: close|Content-Length: 3|X_Y: z||")
	if n, err := r.Parse([]byte(head), "GET", &limits); n != len(head) || err != nil {
		t.Fatal(n, err)
	}
	for _, reset := range []interface{ Reset() }{&q, &r} {
		v := reflect.ValueOf(reset).Elem()
		reset.Reset()
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "Fields" && !v.Field(i).IsZero() {
				t.Errorf("%s.%s is left of the head before", v.Type(), name)
			}
		}
	}
	for _, f := range []*Fields{&q.Fields, &r.Fields} {
		if f.buf != nil || len(f.added)+len(f.lines)+len(f.scratch) > 0 || f.present != 0 || f.unusualNames {
			t.Errorf("%+v is left of the fields before", f)
		}
	}
}
