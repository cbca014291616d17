// SPDX-License-Identifier: MIT
/*  test_lbfgs.c - L-BFGS beside numbers of torch.optim.LBFGS (its source of 2.15, run over lists of doubles), and what
    it refuses */
#include "fault.h"
#include "tensor.h"

#include <math.h>

/*  Rosenbrock's function of four numbers, which are one tensor or two. */
typedef struct problem {
    ignis_tensor p[2];
    int parts, calls;
    ignis_optimizer optimizer;
} problem;

static ignis_tensor rosenbrock(void *user_data)
{
    problem *r = (problem *)user_data;
    ignis_tensor x = r->parts == 1 ? r->p[0] : ignis_concat(r->p, 2, 0), a = ignis_slice(x, 0, 0, 3),
                 b = ignis_slice(x, 0, 1, 3);
    r->calls++;
    return ignis_map_sum("100*(b - a*a)*(b - a*a) + (1 - a)*(1 - a)", IGNIS_INPUTS(a, b));
}

static const double begin[] = {-1.2, 1, 0.5, 2};

static problem make_problem(int parts, ignis_dtype dtype, const ignis_lbfgs_desc *desc)
{
    problem r;
    int i;
    memset(&r, 0, sizeof r);
    r.parts = parts;
    r.optimizer = ignis_lbfgs(desc);
    for (i = 0; i < parts; i++) {
        r.p[i] = tensor_of(begin + 2 * i, IGNIS_SHAPE(parts == 1 ? 4 : 2), dtype, true);
        CHECK_OK(ignis_optimizer_add(r.optimizer, r.p[i], i == 0));
    }
    return r;
}

static void end_problem(problem *r)
{
    int i;
    for (i = 0; i < r->parts; i++)
        let_go(r->p[i]);
    CHECK_OK(ignis_optimizer_free(r->optimizer));
}

/*  A call of step: the loss before it, the parameters after it, and how many losses were computed until then. */
typedef struct expected {
    double loss, p[4];
    int calls;
} expected;

static const expected wolfe[] = {
    {355.69999999999999, {-0.97505351346220348, 1.0654997593990649, 1.2082106312600507, 1.4927223006669013}, 5},
    {5.9060146433869303, {-1.0433718663991367, 1.0984300998114429, 1.2110363424324428, 1.4692535418102313}, 10},
    {4.2419209518327898, {-1.0401142960061429, 1.0811011013576386, 1.1712838656373898, 1.3831558567553326}, 15},
    {4.2113194623631323, {-1.0061646911698765, 0.99055759486413997, 0.97163244942302951, 0.93451250456721846}, 20},
    {4.091453307944434, {-0.94292315188279197, 0.90915779183780632, 0.83335815478112529, 0.68215051752457012}, 25},
    {3.8710140832240194, {-0.88676546379606314, 0.78982142413973722, 0.62376850879428558, 0.38572877310634635}, 31}};
static const expected history_2[] = {
    {355.69999999999999, {-0.9906159056931032, 1.0580748490866181, 1.2209614307077825, 1.5253181593511291}, 5},
    {5.7523867240824611, {-1.0465636452400449, 1.1044472454007492, 1.2259654562675744, 1.5015658958817366}, 10},
    {4.2627677593252988, {-1.0460797705231319, 1.1040242357070711, 1.2232118777362302, 1.500075176542061}, 15},
    {4.2599272788174813, {-1.0377735284577607, 1.0896931023455203, 1.1975530462580808, 1.4444994902329258}, 21},
    {4.236762090988945, {-0.97043701834569918, 0.96451598670489669, 0.94190735155319516, 0.86823513667124352}, 26},
    {3.9885143958175835, {-0.95140346408652787, 0.91416529492019849, 0.82918482613107525, 0.67157254037158631}, 31}};
static const expected fixed[] = {
    {355.69999999999999, {-1.1252196743293541, 0.98967450189782791, 0.80713997342687693, 1.8138418916769674}, 3},
    {150.27499576325661, {-1.0850679576049636, 1.0340550990931268, 1.0535505515535457, 1.721943595096239}, 6},
    {43.881552003457472, {-1.0769987621801962, 1.0548301355098462, 1.1147401048968373, 1.7071365154315685}, 9},
    {27.010236723381549, {-1.0726777961174789, 1.0716663212447226, 1.1571529498812867, 1.6994752475054866}, 12},
    {17.951042883240852, {-1.0700334976622965, 1.0850983432900132, 1.1883196120537085, 1.6952735636894074}, 15},
    {12.716594924510122, {-1.0682689986235967, 1.0957400403539885, 1.2118361423040209, 1.6929055347587569}, 18}};
static const expected evaluations[] = {
    {355.69999999999999, {-1.0486343323568028, 1.0982204394688202, 1.2097431991418153, 1.4697489689517171}, 7},
    {4.2560095900754016, {-1.0401142960061429, 1.0811011013576386, 1.1712838656373898, 1.3831558567553326}, 14},
    {4.2113194623631323, {-0.96320836471104987, 0.93644210053948751, 0.87787089398921936, 0.75838456291582346}, 21},
    {3.8958138482483071, {-0.88676546379606314, 0.78982142413973722, 0.62376850879428558, 0.38572877310634635}, 29}};
static const expected converged[] = {
    {355.69999999999999, {-0.77565797109827361, 0.61309108112046773, 0.38206053926734596, 0.14597006876614196}, 44},
    {3.7014286104713108, {-0.77565797109827361, 0.61309108112046773, 0.38206053926734596, 0.14597006876614196}, 45},
    {3.7014286104713108, {-0.77565797109827361, 0.61309108112046773, 0.38206053926734596, 0.14597006876614196}, 46}};

/*  Sums in another order grow along the path: 1e-9 after some twenty steps. */
static void check_path(const ignis_lbfgs_desc *desc, const expected *path, int count)
{
    int parts, s, k;
    for (parts = 1; parts <= 2; parts++) {
        problem r = make_problem(parts, IGNIS_F64, desc);
        for (s = 0; s < count; s++) {
            double loss = 0;
            CHECK_OK(ignis_lbfgs_step(r.optimizer, rosenbrock, &r, &loss));
            CHECK_CLOSE(loss, path[s].loss, 1e-9);
            CHECK_INT(r.calls, path[s].calls);
            for (k = 0; k < 4; k++)
                CHECK_CLOSE(parts == 1 ? value_at(r.p[0], k) : value_at(r.p[k / 2], k % 2), path[s].p[k], 1e-9);
        }
        end_problem(&r);
    }
}

TEST(paths_of_pytorch)
{
    ignis_lbfgs_desc d;
    SETUP(NULL);
    memset(&d, 0, sizeof d);
    d.max_iter = 4;
    check_path(&d, wolfe, 6);
    d.history = 2, d.lr = 0.7;
    check_path(&d, history_2, 6);
    memset(&d, 0, sizeof d);
    d.no_line_search = true, d.max_iter = 3, d.lr = 0.1;
    check_path(&d, fixed, 6);
    memset(&d, 0, sizeof d);
    d.max_iter = 10, d.max_eval = 7;
    check_path(&d, evaluations, 4);
    memset(&d, 0, sizeof d);
    d.max_iter = 60;
    check_path(&d, converged, 3);
}

/*  A square of f32 with 33 elements ends at its lowest point; so does one of mixed dtypes, beside an empty tensor. */
static ignis_tensor bowl(void *user_data)
{
    problem *r = (problem *)user_data;
    ignis_tensor x = r->p[0], y = r->p[1];
    r->calls++;
    return ignis_add(ignis_cast(ignis_map_sum("(1 + index(0))*(x - 2)*(x - 2)", IGNIS_INPUTS(x)), IGNIS_F64),
                     ignis_map_sum("(y + 1)*(y + 1)", IGNIS_INPUTS(y)));
}

TEST(a_bowl_in_f32)
{
    ignis_tensor empty;
    problem r;
    int k;
    SETUP(NULL);
    memset(&r, 0, sizeof r);
    r.parts = 2;
    r.optimizer = ignis_lbfgs(NULL);
    r.p[0] = tensor_noise(IGNIS_SHAPE(33), IGNIS_F32, 1, true);
    r.p[1] = tensor_noise(IGNIS_SHAPE(3, 2), IGNIS_F64, 2, true);
    empty = tensor_noise(IGNIS_SHAPE(0, 2), IGNIS_F32, 2, true);
    CHECK_OK(ignis_optimizer_add(r.optimizer, r.p[0], false));
    CHECK_OK(ignis_optimizer_add(r.optimizer, empty, false));
    CHECK_OK(ignis_optimizer_add(r.optimizer, r.p[1], false));
    for (k = 0; k < 4; k++)
        CHECK_OK(ignis_lbfgs_step(r.optimizer, bowl, &r, NULL));
    for (k = 0; k < 33; k++)
        CHECK_CLOSE(value_at(r.p[0], k), 2, 1e-4);
    for (k = 0; k < 6; k++)
        CHECK_CLOSE(value_at(r.p[1], k), -1, 1e-4);
    let_go(empty);
    end_problem(&r);
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static ignis_tensor nothing(void *user_data) { return (void)user_data, no_tensor(); }

static ignis_tensor step_in_step(void *user_data)
{
    problem *r = (problem *)user_data;
    ignis_tensor late = tensor_noise(IGNIS_SHAPE(1), IGNIS_F64, 1, true);
    CHECK_STATUS(ignis_lbfgs_step(r->optimizer, rosenbrock, r, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OPTIMIZER_STATE);
    CHECK_MESSAGE_HAS("is running");
    CHECK_STATUS(ignis_optimizer_add(r->optimizer, late, false), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OPTIMIZER_STATE);
    ignis_status_clear();
    return rosenbrock(user_data);
}

TEST(refusals)
{
    ignis_lbfgs_desc d;
    ignis_optimizer sgd, none = {0};
    ignis_tensor half;
    problem r;
    SETUP(NULL);
    memset(&d, 0, sizeof d);
    d.lr = -1;
    CHECK_REFUSED(0, ignis_lbfgs(&d).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("lr is -1");
    d.lr = 0, d.max_iter = -2;
    CHECK_REFUSED(0, ignis_lbfgs(&d).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("max_iter is -2");
    d.max_iter = 0, d.tolerance_grad = NAN;
    CHECK_REFUSED(0, ignis_lbfgs(&d).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    d.tolerance_grad = 0, d.history = -1;
    CHECK_REFUSED(0, ignis_lbfgs(&d).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    sgd = ignis_lbfgs(NULL);
    CHECK_STATUS(ignis_lbfgs_step(sgd, rosenbrock, NULL, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    half = tensor_noise(IGNIS_SHAPE(2), IGNIS_BF16, 1, true);
    CHECK_STATUS(ignis_optimizer_add(sgd, half, false), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("the tensor is bf16");
    CHECK_OK(ignis_optimizer_free(sgd));
    sgd = ignis_sgd(NULL);
    CHECK_STATUS(ignis_lbfgs_step(sgd, rosenbrock, NULL, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OPTIMIZER_STATE);
    CHECK_MESSAGE_HAS("the optimizer is sgd");
    CHECK_STATUS(ignis_lbfgs_step(none, rosenbrock, NULL, NULL), IGNIS_ERROR_FREED, IGNIS_DIAG_OPTIMIZER_FREED);
    CHECK_OK(ignis_optimizer_free(sgd));
    r = make_problem(1, IGNIS_F64, NULL);
    CHECK_STATUS(ignis_lbfgs_step(r.optimizer, NULL, &r, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_lbfgs_step(r.optimizer, nothing, &r, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_MESSAGE_HAS("fn returned no tensor");
    CHECK_FAILS(ignis_optimizer_step(r.optimizer), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OPTIMIZER_STATE);
    CHECK_FAILS(ignis_clip_grad_norm(r.optimizer, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OPTIMIZER_STATE);
    CHECK_REFUSED(-1, ignis_optimizer_add_group(r.optimizer, 1, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OPTIMIZER_STATE);
    CHECK_OK(ignis_graph_begin());
    CHECK_STATUS(ignis_lbfgs_step(r.optimizer, rosenbrock, &r, NULL), IGNIS_ERROR_UNSUPPORTED,
                 IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_OK(ignis_graph_free(ignis_graph_end()));
    CHECK_OK(ignis_lbfgs_step(r.optimizer, step_in_step, &r, NULL));
    CHECK_CLOSE(value_at(r.p[0], 0), -0.77, 0.5);
    let_go(half);
    end_problem(&r);
}

/*  A step while calls of a name fail, one after the other (null: allocations on the host). */
static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_lbfgs_desc d;
    bool reached = true;
    int64_t before;
    int at;
    SETUP(&desc);
    memset(&d, 0, sizeof d);
    d.max_iter = 2, d.max_eval = 3, d.history = 1;
    let_go(tensor_counting(IGNIS_SHAPE(1), IGNIS_F32, 1, false));
    before = memory().live_bytes;
    for (at = 1; at < 3000 && reached; at += at < 40 ? 1 : 17) {
        problem r;
        memset(&r, 0, sizeof r);
        r.parts = 1;
        r.p[0] = tensor_of(begin, IGNIS_SHAPE(4), IGNIS_F64, true);
        fault_plan(prefix, at, 2, &counter, false);
        r.optimizer = ignis_lbfgs(&d);
        if (r.optimizer.id && ignis_optimizer_add(r.optimizer, r.p[0], true) == IGNIS_OK)
            (void)ignis_lbfgs_step(r.optimizer, rosenbrock, &r, NULL);
        reached = fault_over(&counter);
        ignis_status_clear();
        CHECK_OK(ignis_tape_clear());
        end_problem(&r);
        CHECK_INT(memory().live_bytes, before);
    }
    CHECK(at > 20 && !reached);
}

TEST(launches_fail) { sweep("cuLaunchKernel"); }
TEST(host_allocations_fail) { sweep(NULL); }

int main(int argc, char **argv) { return test_run(argc, argv); }
