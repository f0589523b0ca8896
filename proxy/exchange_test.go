package proxy

import (
	"reflect"
	"slices"
	"testing"
)

// An exchange that is used again tells nothing of the request before: what it keeps is
// memory.
func TestExchange_ResetForgetsTheRequest(t *testing.T) {
	x := newExchange().(*exchange)
	fill(reflect.ValueOf(x).Elem())
	edit := x.forwarded.edit
	x.reset()
	x.forwarded.edit, x.reused, x.unusedIDs = nil, false, "" // these stay what they are
	if left := remains(reflect.ValueOf(x).Elem(), "exchange"); len(left) > 0 {
		t.Errorf("%q are left of the request before", left)
	}
	if edit == nil {
		t.Error("what edits headers is made for each request anew")
	}
}

// fill gives each field of v a value that is not zero.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		f = reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem() // as if it were exported
		switch f.Kind() {
		case reflect.Struct:
			fill(f)
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
		case reflect.String:
			f.SetString("a")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int, reflect.Int64:
			f.SetInt(1)
		case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			f.SetUint(1)
		}
	}
}

// remains are the fields of v that are not zero, nor empty.
func remains(v reflect.Value, name string) (left []string) {
	for i := range v.NumField() {
		f, name := v.Field(i), name+"."+v.Type().Field(i).Name
		switch {
		case slices.Contains([]string{"exchange.request.tree", "exchange.extracted.value", "exchange.extracted.memos", "exchange.told.memory", "exchange.forwarded.request.forwarding"}, name): // of theirs the owners take care
		case f.Kind() == reflect.Struct:
			left = append(left, remains(f, name)...)
		case f.Kind() == reflect.Slice && f.Len() == 0, f.IsZero():
		default:
			left = append(left, name)
		}
	}
	return left
}
