package admin

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// schemas are the schemas of structs by type name.
type schemas object

// of returns the schema of the JSON encoding of a value of type t.
func (s schemas) of(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[File]():
		return object{"type": "string", "format": "binary"}
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Float64:
		return object{"type": "number", "format": "double"}
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem()), "nullable": true} // a nil slice is encoded as null
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem()), "nullable": true}
	case reflect.Struct:
		return s.named(t)
	}
	panic(fmt.Sprintf("no schema for %v", t)) // a programming error in a type of the API
}

// named returns a reference to the schema of a struct, which is created on first use.
func (s schemas) named(t reflect.Type) object {
	ref := object{"$ref": "#/components/schemas/" + t.Name()}
	if _, made := s[t.Name()]; made {
		return ref
	}
	properties, required := object{}, []string{}
	s[t.Name()] = properties // set first, for recursive types
	s.fields(t, properties, &required)
	made := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		made["required"] = required
	}
	s[t.Name()] = made
	return ref
}

// fields adds the JSON fields of t, including those of embedded structs.
func (s schemas) fields(t reflect.Type, properties object, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case f.Anonymous && name == "":
			s.fields(f.Type, properties, required)
		default:
			properties[name] = s.of(f.Type)
			if options == "" {
				*required = append(*required, name)
			}
		}
	}
}
