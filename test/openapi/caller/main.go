//go:build generated

// Package main asks a running weir for each operation of its API, with the client that
// was generated from its document, which the test lays beside this file. It prints the
// name of each that was answered as it should be.
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"mime/multipart"
	"net/http"
	"os"
	"reflect"
	"strings"

	_ "github.com/oapi-codegen/runtime" // the generated client needs it
)

// A caller calls operations and notes how they went.
type caller struct {
	*ClientWithResponses
	ctx    context.Context
	failed bool
}

func main() {
	at, token, config := os.Args[1], os.Args[2], os.Args[3]
	signed := func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}
	client, err := NewClientWithResponses(at, WithRequestEditorFn(signed))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	c := &caller{ClientWithResponses: client, ctx: context.Background()}
	c.looks()
	c.keys()
	c.configures(config)
	c.replays(config)
	c.events()
	c.refusals(at)
	if c.failed {
		os.Exit(1)
	}
}

// answered notes the answer to an operation: it is 200, its body was read into the type
// that the document has, and something holds of that.
func answered[A any](c *caller, name string, ask func() (A, error), holds func(a A) bool) {
	a, err := ask()
	if err != nil {
		c.fail("%s: %v", name, err)
		return
	}
	answer := reflect.ValueOf(a).Elem()
	status := answer.FieldByName("HTTPResponse").Elem().FieldByName("StatusCode").Int()
	body := answer.FieldByName("Body").Bytes()
	if status != http.StatusOK || answer.FieldByName("JSON200").IsNil() || !holds(a) {
		c.fail("%s is answered %d %s", name, status, body)
		return
	}
	fmt.Println(name)
}

func (c *caller) fail(format string, values ...any) {
	c.failed = true
	fmt.Fprintf(os.Stderr, format+"\n", values...)
}

func (c *caller) looks() {
	answered(c, "getConfig", func() (*GetConfigResponse, error) { return c.GetConfigWithResponse(c.ctx) }, func(a *GetConfigResponse) bool { return strings.Contains(a.JSON200.Effective, "name: sms") })
	answered(c, "getRoutes", func() (*GetRoutesResponse, error) { return c.GetRoutesWithResponse(c.ctx) }, func(a *GetRoutesResponse) bool { return (*a.JSON200.Routes)[0].Name == "sms" })
	answered(c, "getLimits", func() (*GetLimitsResponse, error) { return c.GetLimitsWithResponse(c.ctx) }, func(a *GetLimitsResponse) bool { return len(*a.JSON200.Limits) == 3 })
	answered(c, "getNodes", func() (*GetNodesResponse, error) { return c.GetNodesWithResponse(c.ctx) }, func(a *GetNodesResponse) bool { return len(*a.JSON200.Nodes) == 1 })
	answered(c, "getLeader", func() (*GetLeaderResponse, error) { return c.GetLeaderWithResponse(c.ctx) }, func(a *GetLeaderResponse) bool { return a.JSON200.Self != "" })
	answered(c, "getUpstreams", func() (*GetUpstreamsResponse, error) { return c.GetUpstreamsWithResponse(c.ctx) }, func(a *GetUpstreamsResponse) bool {
		u := *a.JSON200.Upstreams
		return len(u) == 1 && len(*u[0].Targets) == 1 && (*u[0].Targets)[0].State == "healthy"
	})
	minutes := 5
	answered(c, "getStatistics", func() (*GetStatisticsResponse, error) {
		return c.GetStatisticsWithResponse(c.ctx, &GetStatisticsParams{Minutes: &minutes})
	}, func(*GetStatisticsResponse) bool { return true })
	answered(c, "getTop", func() (*GetTopResponse, error) { return c.GetTopWithResponse(c.ctx, &GetTopParams{Minutes: &minutes}) }, func(a *GetTopResponse) bool { return (*a.JSON200.Limits)[0].Refused.Total == 2 })
	answered(c, "getConversion", func() (*GetConversionResponse, error) {
		return c.GetConversionWithResponse(c.ctx, &GetConversionParams{})
	}, func(a *GetConversionResponse) bool {
		l := *a.JSON200.Limits
		return len(l) == 1 && l[0].Limit == "watched" && len(*l[0].Keys) == 1
	})
	outcome := Refused
	answered(c, "getDecisions", func() (*GetDecisionsResponse, error) {
		return c.GetDecisionsWithResponse(c.ctx, &GetDecisionsParams{Outcome: &outcome})
	}, func(a *GetDecisionsResponse) bool {
		return len(*a.JSON200.Decisions) == 2 && (*a.JSON200.Decisions)[0].Status == 429
	})
	header := map[string]*[]string{"X-Phone": {"+8613800138000"}}
	answered(c, "postExplain", func() (*PostExplainResponse, error) {
		return c.PostExplainWithResponse(c.ctx, ExplainRequest{Method: "GET", Url: "/sms", Header: &header})
	}, func(a *PostExplainResponse) bool { return a.JSON200.Answer.Status == 429 })
}

func (c *caller) keys() {
	pairs, why := &[]KeyPair{{Key: "phone", Value: "+8613800138000"}}, "she called"
	answered(c, "postKeysInspect", func() (*PostKeysInspectResponse, error) {
		return c.PostKeysInspectWithResponse(c.ctx, KeyQuery{Pairs: pairs})
	}, func(a *PostKeysInspectResponse) bool { return (*(*a.JSON200.Limits)[0].Windows)[0].Left == 0 })
	answered(c, "postKeysGrant", func() (*PostKeysGrantResponse, error) {
		return c.PostKeysGrantWithResponse(c.ctx, nil, KeyGrant{Pairs: pairs, Permits: 1, Reason: &why})
	}, func(a *PostKeysGrantResponse) bool { return a.JSON200.Everywhere })
	answered(c, "postKeysBan", func() (*PostKeysBanResponse, error) {
		return c.PostKeysBanWithResponse(c.ctx, nil, KeyBan{Pairs: pairs, For: "1h", Reason: &why})
	}, func(a *PostKeysBanResponse) bool { return (*a.JSON200.Changed)[0].BannedUntil != nil })
	answered(c, "postKeysUnban", func() (*PostKeysUnbanResponse, error) {
		return c.PostKeysUnbanWithResponse(c.ctx, nil, KeyAction{Pairs: pairs, Reason: &why})
	}, func(a *PostKeysUnbanResponse) bool { return (*a.JSON200.Changed)[0].BannedUntil == nil })
	answered(c, "postKeysPlan", func() (*PostKeysPlanResponse, error) {
		return c.PostKeysPlanWithResponse(c.ctx, nil, KeyPlan{Pairs: pairs, Plan: "pro", For: "1h", Reason: &why})
	}, func(a *PostKeysPlanResponse) bool { return (*a.JSON200.Changed)[0].PlanUntil != nil })
	answered(c, "getKeysPlans", func() (*GetKeysPlansResponse, error) { return c.GetKeysPlansWithResponse(c.ctx) }, func(a *GetKeysPlansResponse) bool {
		return *(*a.JSON200.Keys)[0].Plan == "pro"
	})
	answered(c, "postKeysUnplan", func() (*PostKeysUnplanResponse, error) {
		return c.PostKeysUnplanWithResponse(c.ctx, nil, KeyAction{Pairs: pairs, Reason: &why})
	}, func(a *PostKeysUnplanResponse) bool { return (*a.JSON200.Changed)[0].PlanUntil == nil })
	answered(c, "getBans", func() (*GetBansResponse, error) { return c.GetBansWithResponse(c.ctx) }, func(a *GetBansResponse) bool { return len(*a.JSON200.Networks) == 0 })
	for _, on := range []bool{true, false} {
		route, hour := "moved", "1h"
		answered(c, "postMaintenance", func() (*PostMaintenanceResponse, error) {
			return c.PostMaintenanceWithResponse(c.ctx, MaintenanceChange{On: on, Route: &route, For: &hour, Reason: &why})
		}, func(a *PostMaintenanceResponse) bool { return (len(*a.JSON200.On) == 1) == on })
	}
	answered(c, "getMaintenance", func() (*GetMaintenanceResponse, error) { return c.GetMaintenanceWithResponse(c.ctx) }, func(a *GetMaintenanceResponse) bool { return len(*a.JSON200.On) == 0 })
	answered(c, "postOutcomes", func() (*PostOutcomesResponse, error) {
		return c.PostOutcomesWithResponse(c.ctx, nil, Outcome{Key: "phone", Value: "+8613800138000", Outcome: "verified"})
	}, func(a *PostOutcomesResponse) bool { return len(*a.JSON200.Returned) == 1 })
	answered(c, "postKeysReset", func() (*PostKeysResetResponse, error) {
		return c.PostKeysResetWithResponse(c.ctx, nil, KeyAction{Pairs: pairs, Reason: &why})
	}, func(a *PostKeysResetResponse) bool { return len(*a.JSON200.Changed) == 2 })
	answered(c, "getAudit", func() (*GetAuditResponse, error) { return c.GetAuditWithResponse(c.ctx, &GetAuditParams{}) }, func(a *GetAuditResponse) bool {
		return len(*a.JSON200.Entries) == 9 && *(*a.JSON200.Entries)[0].Reason == why
	})
}

func (c *caller) configures(config string) {
	files := func(text string) Bundle {
		return Bundle{Main: "weir.yaml", Files: &map[string]string{"weir.yaml": text}}
	}
	push := Push{Author: "ann", Bundle: files(config)}
	answered(c, "postPlan", func() (*PostPlanResponse, error) { return c.PostPlanWithResponse(c.ctx, push) }, func(a *PostPlanResponse) bool { return len(*a.JSON200.Changes) > 0 })
	answered(c, "postPush", func() (*PostPushResponse, error) { return c.PostPushWithResponse(c.ctx, push) }, func(a *PostPushResponse) bool { return a.JSON200.Changed })
	push.Bundle = files(strings.Replace(config, "2/1h", "3/1h", 1))
	answered(c, "postPush", func() (*PostPushResponse, error) { return c.PostPushWithResponse(c.ctx, push) }, func(a *PostPushResponse) bool { return a.JSON200.Changed })
	var last int64
	answered(c, "getHistory", func() (*GetHistoryResponse, error) { return c.GetHistoryWithResponse(c.ctx) }, func(a *GetHistoryResponse) bool {
		last = (*a.JSON200.History)[0].Generation
		return (*a.JSON200.History)[0].Author == "ann"
	})
	answered(c, "getHistoryGeneration", func() (*GetHistoryGenerationResponse, error) { return c.GetHistoryGenerationWithResponse(c.ctx, last) }, func(a *GetHistoryGenerationResponse) bool {
		return strings.Contains(a.JSON200.Diff, "3/1h")
	})
	answered(c, "postRollback", func() (*PostRollbackResponse, error) {
		return c.PostRollbackWithResponse(c.ctx, Rollback{Author: "bob"})
	}, func(a *PostRollbackResponse) bool {
		return a.JSON200.Changed && a.JSON200.Generation == last+1
	})
	answered(c, "postReload", func() (*PostReloadResponse, error) { return c.PostReloadWithResponse(c.ctx) }, func(a *PostReloadResponse) bool { return a.JSON200.Generation == last+1 })
}

// replays sends a log, and another configuration to compare with.
func (c *caller) replays(config string) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	form.WriteField("other", strings.Replace(config, "2/1h", "1/1h", 1))
	log, err := form.CreateFormFile("log", "access.log")
	if err != nil {
		c.fail("%v", err)
		return
	}
	for range 3 {
		fmt.Fprintln(log, `{"time":"2026-11-22T09:30:00Z","remote_addr":"192.0.2.1","request_method":"GET","request_uri":"/sms","status":200,"http_x_phone":"+8613800138000"}`)
	}
	form.Close()
	answered(c, "postSimulate", func() (*PostSimulateResponse, error) {
		return c.PostSimulateWithBodyWithResponse(c.ctx, form.FormDataContentType(), &body)
	}, func(a *PostSimulateResponse) bool {
		both := *a.JSON200.Differences
		return a.JSON200.Requests == 3 && a.JSON200.Result.Refused == 1 && a.JSON200.Against.Refused == 2 && len(both) > 1 && both[1].B.Refused == 2
	})
}

// events are a stream, of which the first is read.
func (c *caller) events() {
	answer, err := c.GetEvents(c.ctx)
	if err != nil {
		c.fail("getEvents: %v", err)
		return
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	if lines.Scan(); answer.StatusCode != http.StatusOK || !strings.HasPrefix(lines.Text(), "event: ") {
		c.fail("getEvents is answered %s, and begins with %q", answer.Status, lines.Text())
		return
	}
	fmt.Println("getEvents")
}

// refusals are problems of the type that the document has.
func (c *caller) refusals(at string) {
	stranger, err := NewClientWithResponses(at)
	if err != nil {
		c.fail("%v", err)
		return
	}
	for _, a := range []func() (*GetTopResponse, error){
		func() (*GetTopResponse, error) { return stranger.GetTopWithResponse(c.ctx, &GetTopParams{}) },
		func() (*GetTopResponse, error) {
			minutes := 99
			return c.GetTopWithResponse(c.ctx, &GetTopParams{Minutes: &minutes})
		},
	} {
		if a, err := a(); err != nil || a.JSON200 != nil || a.ApplicationproblemJSONDefault == nil || int(a.ApplicationproblemJSONDefault.Status) != a.StatusCode() {
			c.fail("getTop is not refused with a problem: %v", err)
		}
	}
}
