// Package pooltest shows of a type whose values go back to a pool that none of its fields
// outlives a reset, also one that somebody adds later.
package pooltest

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"unsafe"

	"github.com/weir-proxy/weir/limiter/reuse"
)

// maxDepth is how deep Fill goes. What lies deeper belongs to something else.
const maxDepth = 12

// Fill sets every field of the value at p, exported or not, and of all structs, arrays, slices and
// maps in it, to something that is not its zero value. A pointer gets a new value. An interface gets
// the first of values that implements it, an error one of its own. What cannot be filled fails the test.
// Of package sync only the Locker of a Cond is filled.
func Fill(t testing.TB, p any, values ...any) {
	t.Helper()
	f := filler{t, values}
	f.fill(reflect.ValueOf(p).Elem(), reflect.TypeOf(p).Elem().Name(), 0)
}

type filler struct {
	testing.TB
	values []any
}

func (f *filler) fill(v reflect.Value, path string, depth int) {
	f.Helper()
	v = settable(v)
	if depth > maxDepth {
		return
	}
	for _, one := range f.values {
		if at := reflect.ValueOf(one); at.Type() == v.Type() || v.Kind() == reflect.Interface && v.NumMethod() > 0 && at.Type().Implements(v.Type()) {
			v.Set(at)
			return
		}
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		v.SetUint(7)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(7)
	case reflect.String:
		v.SetString("of another client")
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice {
			v.Set(reflect.MakeSlice(v.Type(), 3, 5))
		}
		for i := range v.Len() {
			f.fill(v.Index(i), fmt.Sprintf("%s[%d]", path, i), depth+1)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key, path+" key", depth+1)
		f.fill(value, path+" value", depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem())) // whose value is not of this one
	case reflect.UnsafePointer: // of an atomic.Pointer
		v.SetPointer(unsafe.Pointer(new([1024]byte))) // #nosec G103 -- nobody follows it
	case reflect.Chan:
		v.Set(reflect.MakeChan(reflect.ChanOf(reflect.BothDir, v.Type().Elem()), 1).Convert(v.Type()))
	case reflect.Func:
		v.Set(reflect.MakeFunc(v.Type(), func([]reflect.Value) []reflect.Value { panic("a function of pooltest") }))
	case reflect.Interface:
		switch {
		case v.NumMethod() == 0:
			v.Set(reflect.ValueOf(7))
		case v.Type() == reflect.TypeFor[error]():
			v.Set(reflect.ValueOf(errors.New("of another client")))
		default:
			f.Fatalf("%s: no value for %s", path, v.Type())
		}
	case reflect.Struct:
		if v.Type().PkgPath() == "sync" {
			if l := v.FieldByName("L"); l.IsValid() { // of a Cond
				l.Set(reflect.ValueOf(new(sync.Mutex)))
			}
			return
		}
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "_" {
				f.fill(v.Field(i), path+"."+name, depth+1)
			}
		}
	default:
		f.Fatalf("%s: cannot fill %s", path, v.Type())
	}
}

// Empty fails the test for each field of the value at p that is neither zero nor named in kept
// by its path, such as "Stream.State". A slice may keep its memory if its length is 0. With the build
// tag poison nothing may lie in that.
func Empty(t testing.TB, p any, kept ...string) {
	t.Helper()
	e := &emptiness{TB: t, looks: reuse.Poisoned}
	e.checkAll(p, kept)
}

// Cleared is Empty for what overwrites the memory that it keeps in every build, but for bytes.
func Cleared(t testing.TB, p any, kept ...string) {
	t.Helper()
	e := &emptiness{TB: t, looks: true}
	e.checkAll(p, kept)
}

// An emptiness finds what is left in a value.
type emptiness struct {
	testing.TB
	looks bool            // into the memory of slices
	kept  map[string]bool // what may be left, and was not found yet
}

func (e *emptiness) checkAll(p any, kept []string) {
	e.Helper()
	e.kept = map[string]bool{}
	for _, path := range kept {
		e.kept[path] = true
	}
	e.check(reflect.ValueOf(p).Elem(), reflect.TypeOf(p).Elem().Name())
	for path := range e.kept {
		e.Errorf("%s is not kept; do not name it", path)
	}
}

func (e *emptiness) check(v reflect.Value, path string) {
	e.Helper()
	v = settable(v)
	switch {
	case isKept(e.kept, path), v.IsZero():
	case v.Kind() == reflect.Slice && v.Len() == 0:
		if e.looks && v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Cap() {
				if one := v.Slice(0, v.Cap()).Index(i); !one.IsZero() {
					e.Errorf("%s has %v in its memory after the reset", path, one)
				}
			}
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			e.check(v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	default:
		e.Errorf("%s is %v after the reset", path, v)
	}
}

// isKept reports whether path is named, and notes that it was.
func isKept(kept map[string]bool, path string) bool {
	_, named := kept[path]
	delete(kept, path)
	return named
}

// settable is v without the flag by which reflect protects fields that are not exported.
func settable(v reflect.Value) reflect.Value {
	if v.CanSet() {
		return v
	}
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem() // #nosec G103 -- a test of memory
}
