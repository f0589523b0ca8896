package decide

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weir-proxy/weir/proxy/protobuf"
	"github.com/weir-proxy/weir/proxy/respond"
)

// bytesCodec passes messages through as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string                       { return "proto" }
func (bytesCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (bytesCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }

// descriptor encodes a descriptor with entries NAME=VALUE.
func descriptor(entries ...string) []byte {
	var b []byte
	for _, e := range entries {
		name, value, _ := strings.Cut(e, "=")
		b = protobuf.AppendMessage(b, 1, protobuf.AppendText(protobuf.AppendText(nil, 1, name), 2, value))
	}
	return b
}

// negative makes the hits of a descriptor negative.
func negative(descriptor []byte) []byte { return protobuf.AppendNumber(descriptor, 4, 1) }

// hits sets the hits of a descriptor.
func hits(n uint64, descriptor []byte) []byte {
	return protobuf.AppendMessage(descriptor, 3, protobuf.AppendNumber(nil, 1, n))
}

// A said is what a RateLimitResponse says.
type said struct {
	code     code
	statuses []said
	limit    string // of a status: NAME COUNT/UNIT
	left     uint64
	toClient map[string]string
	upstream map[string]string
	body     string
	metadata string
}

// read decodes a response.
func (s *said) read(data []byte) error {
	s.toClient, s.upstream = map[string]string{}, map[string]string{}
	return protobuf.EachField(data, func(f protobuf.Field) error {
		switch f.Number {
		case 1:
			s.code = code(f.Varint)
		case 2:
			var one said
			err := one.readStatus(f.Bytes)
			s.statuses = append(s.statuses, one)
			return err
		case 3, 4:
			var h respond.Field
			err := protobuf.EachField(f.Bytes, func(f protobuf.Field) error {
				if f.Number == 1 {
					h.Name = string(f.Bytes)
				} else {
					h.Value = string(f.Bytes)
				}
				return nil
			})
			map[protowire.Number]map[string]string{3: s.toClient, 4: s.upstream}[f.Number][h.Name] = h.Value
			return err
		case 5:
			s.body = string(f.Bytes)
		case 6:
			s.metadata = string(f.Bytes)
		}
		return nil
	})
}

func (s *said) readStatus(data []byte) error {
	return protobuf.EachField(data, func(f protobuf.Field) error {
		switch f.Number {
		case 1:
			s.code = code(f.Varint)
		case 2:
			var name string
			var count, unit uint64
			err := protobuf.EachField(f.Bytes, func(f protobuf.Field) error {
				switch f.Number {
				case 1:
					count = f.Varint
				case 2:
					unit = f.Varint
				case 3:
					name = string(f.Bytes)
				}
				return nil
			})
			s.limit = fmt.Sprintf("%s %d/%d", name, count, unit)
			return err
		case 3:
			s.left = f.Varint
		}
		return nil
	})
}

// call asks about descriptors of the domain edge.
func (e *envoy) call(ctx context.Context, descriptors ...[]byte) (said, error) {
	b := protobuf.AppendText(nil, 1, "edge")
	for _, d := range descriptors {
		b = protobuf.AppendMessage(b, 2, d)
	}
	var answer []byte
	err := e.connection.Invoke(ctx, envoyMethod, b, &answer, grpc.ForceCodec(bytesCodec{}))
	var s said
	return s, errors.Join(err, s.read(answer))
}

// wants fails unless the answer about descriptors has this code, and returns it.
func (e *envoy) wants(want code, descriptors ...[]byte) said {
	e.Helper()
	s, err := e.call(e.Context(), descriptors...)
	if err != nil {
		e.Fatal(err)
	}
	if s.code != want {
		e.Errorf("code %d, want %d: %+v", s.code, want, s)
	}
	return s
}
