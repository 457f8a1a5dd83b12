"""Collectives are read from a program's text: kinds, bytes, groups, loops, and each but once."""

from bertzoo.planning.compiled import Collective, find_collectives

TEXT = """\
HloModule jit_train_step, is_scheduled=true, entry_computation_layout={(f32[4]{0})->f32[4]{0}}

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[]{:T(128)} add(%a, %b)
}

%outer_condition (p: (s32[], f32[4])) -> pred[] {
  %three = s32[]{:T(128)} constant(3)
  ROOT %lt = pred[]{:T(512)} compare(%i, %three), direction=LT
}

%inner_condition (p: (s32[], f32[4])) -> pred[] {
  %two = s32[]{:T(128)} constant(2)
  ROOT %lt.1 = pred[]{:T(512)} compare(%i, %two), direction=LT
}

%inner_body (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %scattered = f32[100]{0:T(128)} reduce-scatter(%x), channel_id=5, replica_groups=[4,2]<=[8], to_apply=%add
}

%outer_body (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %inside = (s32[], f32[4]{0}) while(%t), condition=%inner_condition, body=%inner_body
  %gathered = bf16[1,64,64]{2,1,0:T(8,128)(2,1)S(1)} all-gather(%y), channel_id=4, \
replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_1'}, dimensions={1}
}

%async_part.1 (p: f32[10]) -> f32[10] {
  %gathered.1 = f32[1000]{0} all-gather(%z), channel_id=9, replica_groups=[2,4]<=[8], dimensions={0}
}

%async_part.2 (p: f32[10]) -> f32[10] {
  %gathered.2 = f32[1000]{0} all-gather(%z), channel_id=9, replica_groups=[2,4]<=[8], dimensions={0}
}

ENTRY %main (state: f32[4]) -> f32[4] {
  %loop = (s32[], f32[4]{0}) while(%tuple), condition=%outer_condition, body=%outer_body
  %all-reduce.1 = (f32[]{:T(128)}, bf16[30,10]{1,0:T(8,128)(2,1)}, /*index=2*/f32[7]{0:T(1024)S(1)}) \
all-reduce(%a, %b, %c), channel_id=1, replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_0','axis_1'}, to_apply=%add
  %all-reduce.2 = f32[50]{0} all-reduce(%d), replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add
  %all-reduce.3 = f32[25]{0} all-reduce(%d), replica_groups={}, to_apply=%add
  %permuted = (bf16[16,8]{1,0}, bf16[16,8]{1,0}, u32[]{:S(2)}, u32[]{:S(2)}) collective-permute-start(%e), \
channel_id=3, source_target_pairs={{0,1},{1,0}}
  %done = bf16[16,8]{1,0} collective-permute-done(%permuted)
  %send = (f32[30,10]{1,0:T(8,128)}, u32[], token[]) send(%all-reduce.1, %after-all), channel_id=1, \
is_host_transfer=true, frontend_attributes={_xla_host_transfer_rendezvous="all-reduce.58_0",\
_xla_megascale_target="{1,2,3}x{0:3}",_xla_megascale_transfer_type="ALL_REDUCE"}
  %recv = (f32[30,10]{1,0:T(8,128)}, u32[], token[]) recv(%after-all), channel_id=2, is_host_transfer=true, \
frontend_attributes={_xla_megascale_target="{1,2,3}x{0:3}",_xla_megascale_transfer_type="ALL_REDUCE"}
  %part.1 = f32[1000]{0} fusion(%f), kind=kCustom, calls=%async_part.1
  %part.2 = f32[1000]{0} fusion(%f), kind=kCustom, calls=%async_part.2
}
"""


def test_the_collectives_of_a_program():
    found = {(one.kind, one.group): (one.count, one.size, one.sent) for one in find_collectives(TEXT, devices=8)}
    assert found == {
        ("reduce-scatter", 2): (6, 6 * 400, 6 * 400),  # 2 times in each of 3
        ("all-gather", 2): (3, 3 * 8192, 3 * 4096),
        ("all-reduce between slices", 3): (1, 1200, 1600),  # on the channel of another kind
        ("all-gather", 4): (1, 4000, 3000),  # of one channel, though written twice
        ("all-reduce", 8): (2, 4 + 600 + 28 + 100, round(2 * 7 / 8 * 732)),
        ("all-reduce", 4): (1, 200, 300),
        ("collective-permute", 2): (1, 256, 256),
    }


def test_the_largest_comes_first():
    assert find_collectives(TEXT, devices=8)[0] == Collective(
        kind="all-gather", group=2, count=3, size=24576, sent=12288
    )
    assert find_collectives("ENTRY %main (x: f32[]) -> f32[] {\n  ROOT %y = f32[] add(%x, %x)\n}\n", devices=8) == []
