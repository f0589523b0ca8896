package proxy

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/protobuf"
	"github.com/weir-proxy/weir/proxy/respond"
)

// maxGRPCMessage is the maximum length in bytes of the text of a configured body that becomes grpc-message.
const maxGRPCMessage = 1 << 10

// forGRPC makes a what the client of x understands. A call of gRPC that Weir refuses gets 200 without a body and the status of the
// call in the header (Trailers-Only in gRPC's PROTOCOL-HTTP2.md), with the fields of a: a client reads any other
// response as UNAVAILABLE, and may try again at once. The log and the metrics have the status of a.
func (x *exchange) forGRPC(a *respond.Response) {
	if f, ok := x.in.header.(*http1.Fields); a.Status < http.StatusBadRequest || ok && !f.Has(http1.ContentType) {
		return // as most; this is cheaper than a lookup by name
	}
	kind := grpcType(x.in.header.Values("Content-Type"))
	if kind == "" {
		return
	}
	fields := []respond.Field{{Name: "Content-Type", Value: kind}}
	isUnsafe := func(c byte) bool { return c < ' ' || c > '~' || c == '%' }
	if code, message := grpcCode(a.Status), grpcMessage(*a); a.Field("Grpc-Status") == "" { // it is not configured
		fields = append(fields, respond.Field{Name: "Grpc-Status", Value: strconv.FormatUint(code, 10)})
		fields = append(fields, respond.Field{Name: "Grpc-Message", Value: respond.PercentEncode(message, isUnsafe)})
		if after, err := strconv.ParseUint(a.Field("Retry-After"), 10, 32); err == nil {
			fields = append(fields, respond.Field{Name: "Grpc-Status-Details-Bin", Value: grpcDetails(code, message, after)})
		}
	}
	for _, f := range a.Fields {
		if f.Name != "Content-Type" && f.Name != "Content-Length" {
			fields = append(fields, f)
		}
	}
	*a = respond.Response{Status: http.StatusOK, Fields: fields}
}

// grpcType returns the content type of the response to a call of gRPC or gRPC-Web, "" if the request is none.
func grpcType(sent []string) string {
	if len(sent) != 1 {
		return ""
	}
	kind, _, _ := strings.Cut(sent[0], ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	name, codec, _ := strings.Cut(kind, "+")
	switch name {
	case "application/grpc", "application/grpc-web", "application/grpc-web-text":
		if strings.IndexFunc(codec, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) < 0 {
			return kind
		}
	}
	return ""
}

// grpcCode returns the code of gRPC for a status of Weir's own responses, by its meaning: a client may try again after
// UNAVAILABLE, so only what another try may change is that.
func grpcCode(status int) uint64 {
	const cancelled, unknown, invalidArgument, deadlineExceeded, permissionDenied, resourceExhausted = 1, 2, 3, 4, 7, 8
	const failedPrecondition, unimplemented, internal, unavailable, unauthenticated = 9, 12, 13, 14, 16
	switch status {
	case http.StatusUnauthorized:
		return unauthenticated
	case http.StatusForbidden:
		return permissionDenied
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return unimplemented
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return deadlineExceeded
	case http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge, http.StatusTooManyRequests:
		return resourceExhausted
	case http.StatusExpectationFailed, http.StatusPreconditionFailed:
		return failedPrecondition
	case respond.ClientGone:
		return cancelled
	case http.StatusMisdirectedRequest, http.StatusBadGateway, http.StatusServiceUnavailable:
		return unavailable
	}
	switch {
	case status < http.StatusInternalServerError:
		return invalidArgument
	case status < 600:
		return internal
	}
	return unknown
}

// grpcMessage returns what a says: the detail or title of its problem, its plain text, or its status.
func grpcMessage(a respond.Response) string {
	switch kind, _, _ := strings.Cut(a.Field("Content-Type"), ";"); kind {
	case "application/problem+json":
		var problem struct{ Title, Detail string }
		if err := json.Unmarshal(a.Body, &problem); err == nil && problem.Detail != "" {
			return problem.Detail
		} else if err == nil {
			return problem.Title
		}
	case "text/plain":
		return strings.ToValidUTF8(strings.TrimSpace(string(a.Body[:min(len(a.Body), maxGRPCMessage)])), "")
	}
	return http.StatusText(a.Status)
}

// grpcDetails returns a google.rpc.Status with a google.rpc.RetryInfo, in base64.
func grpcDetails(code uint64, message string, seconds uint64) string {
	retry := protobuf.AppendMessage(nil, 1, protobuf.AppendNumber(nil, 1, seconds)) // retry_delay.seconds
	detail := protobuf.AppendMessage(protobuf.AppendText(nil, 1, "type.googleapis.com/google.rpc.RetryInfo"), 2, retry)
	status := protobuf.AppendMessage(protobuf.AppendText(protobuf.AppendNumber(nil, 1, code), 2, message), 3, detail)
	return base64.RawStdEncoding.EncodeToString(status)
}
