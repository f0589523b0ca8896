package decide

import (
	"errors"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/respond"
	"github.com/weir-proxy/weir/proxy/route"
)

// The messages of envoy.service.ratelimit.v3. Their Go package would bring all configuration types of
// Envoy: 3 MB of binary, and 1 MB of memory for everyone who runs Weir.

// A rateLimitRequest is a RateLimitRequest.
type rateLimitRequest struct {
	domain      string            // 1
	descriptors []limitDescriptor // 2
	hits        uint64            // 3
}

// A limitDescriptor is a RateLimitDescriptor.
type limitDescriptor struct {
	entries  route.Descriptor // 1
	hits     uint64           // 3: a UInt64Value; 0 if it is not there
	override bool             // 2: it has a limit of its own
	negative bool             // 4
}

// A rateLimitResponse is a RateLimitResponse.
type rateLimitResponse struct {
	overall  code               // 1
	statuses []descriptorStatus // 2
	toClient []respond.Field    // 3: response_headers_to_add
	upstream []respond.Field    // 4: request_headers_to_add
	body     []byte             // 5: raw_body
	metadata []byte             // 6: a Struct, encoded
}

// A code is a RateLimitResponse.Code.
type code uint64

const (
	codeOK        code = 1
	codeOverLimit code = 2
)

// A descriptorStatus is a RateLimitResponse.DescriptorStatus.
type descriptorStatus struct {
	code      code          // 1
	name      string        // 2.3
	rate      limiter.Rate  // 2.1 and 2.2
	remaining uint64        // 3
	reset     time.Duration // 4
}

// errWire reports bytes that are not the message that was expected.
var errWire = errors.New("not a RateLimitRequest")

// A codec encodes the messages of this file, and those of the health service.
type codec struct{}

// Name implements encoding.Codec.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.Codec.
func (codec) Marshal(v any) ([]byte, error) {
	if m, ok := v.(*rateLimitResponse); ok {
		return m.marshal(), nil
	}
	return proto.Marshal(v.(proto.Message))
}

// Unmarshal implements encoding.Codec.
func (codec) Unmarshal(data []byte, v any) error {
	if m, ok := v.(*rateLimitRequest); ok {
		return m.unmarshal(data)
	}
	return proto.Unmarshal(data, v.(proto.Message))
}

// A wireField is one field of a message.
type wireField struct {
	number protowire.Number
	bytes  []byte // of a length-delimited field
	value  uint64 // of a varint
}

// eachField calls f with the fields of a message. Fields of other wire types are skipped.
func eachField(data []byte, f func(wireField) error) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return errWire
		}
		data = data[n:]
		field := wireField{number: number}
		switch kind {
		case protowire.BytesType:
			field.bytes, n = protowire.ConsumeBytes(data)
		case protowire.VarintType:
			field.value, n = protowire.ConsumeVarint(data)
		default:
			n = protowire.ConsumeFieldValue(number, kind, data)
			field.number = 0
		}
		if n < 0 {
			return errWire
		}
		data = data[n:]
		if err := f(field); err != nil {
			return err
		}
	}
	return nil
}

func (r *rateLimitRequest) unmarshal(data []byte) error {
	return eachField(data, func(f wireField) error {
		switch f.number {
		case 1:
			r.domain = string(f.bytes)
		case 2:
			var d limitDescriptor
			if err := d.unmarshal(f.bytes); err != nil {
				return err
			}
			r.descriptors = append(r.descriptors, d)
		case 3:
			r.hits = f.value
		}
		return nil
	})
}

func (d *limitDescriptor) unmarshal(data []byte) error {
	return eachField(data, func(f wireField) error {
		switch f.number {
		case 1:
			var e route.DescriptorField
			err := eachField(f.bytes, func(f wireField) error {
				switch f.number {
				case 1:
					e.Key = string(f.bytes)
				case 2:
					e.Value = string(f.bytes)
				}
				return nil
			})
			d.entries = append(d.entries, e)
			return err
		case 2:
			d.override = true
		case 3:
			return eachField(f.bytes, func(f wireField) error {
				d.hits = f.value
				return nil
			})
		case 4:
			d.negative = f.value != 0
		}
		return nil
	})
}

func (r *rateLimitResponse) marshal() []byte {
	b := appendNumber(nil, 1, uint64(r.overall))
	for i := range r.statuses {
		b = appendMessage(b, 2, r.statuses[i].marshal())
	}
	for _, f := range r.toClient {
		b = appendMessage(b, 3, appendText(appendText(nil, 1, f.Name), 2, f.Value))
	}
	for _, f := range r.upstream {
		b = appendMessage(b, 4, appendText(appendText(nil, 1, f.Name), 2, f.Value))
	}
	if len(r.body) > 0 {
		b = appendMessage(b, 5, r.body)
	}
	if len(r.metadata) > 0 {
		b = appendMessage(b, 6, r.metadata)
	}
	return b
}

func (s *descriptorStatus) marshal() []byte {
	b := appendNumber(nil, 1, uint64(s.code))
	if s.name == "" {
		return b
	}
	limit := appendNumber(nil, 1, min(uint64(s.rate.Count), math.MaxUint32))
	unit, multiplier := unitOf(s.rate.Window)
	limit = appendText(appendNumber(limit, 2, unit), 3, s.name)
	if multiplier > 1 {
		limit = appendMessage(limit, 4, appendNumber(nil, 1, multiplier))
	}
	b = appendNumber(appendMessage(b, 2, limit), 3, min(s.remaining, math.MaxUint32))
	reset := appendNumber(appendNumber(nil, 1, uint64(s.reset/time.Second)), 2, uint64(s.reset%time.Second))
	return appendMessage(b, 4, reset)
}

// unitOf returns a window as a unit of RateLimitResponse.RateLimit and its multiple; 0 if it is a
// multiple of none.
func unitOf(window time.Duration) (unit, multiplier uint64) {
	for _, u := range []struct {
		number uint64
		length time.Duration
	}{{7, 7 * 24 * time.Hour}, {4, 24 * time.Hour}, {3, time.Hour}, {2, time.Minute}, {1, time.Second}} {
		if window%u.length == 0 {
			return u.number, uint64(window / u.length)
		}
	}
	return 0, 0
}

// A number that is 0 and a text that is empty are left out, as proto3 says.

func appendNumber(b []byte, field protowire.Number, value uint64) []byte {
	if value == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), value)
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func appendMessage(b []byte, field protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), message)
}

// The values of a Struct.

func appendStructNumber(b []byte, name string, value float64) []byte {
	return appendMessage(b, 1, appendMessage(appendText(nil, 1, name), 2, protowire.AppendFixed64(protowire.AppendTag(nil, 2, protowire.Fixed64Type), math.Float64bits(value))))
}

func appendStructText(b []byte, name, value string) []byte {
	text := protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), value)
	return appendMessage(b, 1, appendMessage(appendText(nil, 1, name), 2, text))
}

func appendStructTrue(b []byte, name string) []byte {
	return appendMessage(b, 1, appendMessage(appendText(nil, 1, name), 2, appendNumber(nil, 4, 1)))
}
