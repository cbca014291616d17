/*  models/chat/case_mapping.c - upper, lower and title case of Unicode letters

    The tables are written by tools/case_tables.py, from Unicode 14.0.0.
    May use: value.c, tokenizer/unicode.c. Locks: none. */

#include "room.h"

/*  From here on written by tools/case_tables.py. */
/* clang-format off */
/*  Of Unicode 14.0.0. Runs of letters that change by the same: the first << 43 | 2^42 for every second |
    the last - the first << 26 | 2^25 + the change. */
static const uint64_t ignis__case_lower[] = {
    0x600005A000020, 0x6C0001A000020, 0x80400BA000001, 0x9940012000001, 0x9CC003A000001, 0xA5400B2000001,
    0xBC00001FFFF87, 0xBCC0012000001, 0xC0800020000D2, 0xC14000A000001, 0xC3000020000CE, 0xC380002000001,
    0xC4800060000CD, 0xC580002000001, 0xC70000200004F, 0xC7800020000CA, 0xC8000020000CB, 0xC880002000001,
    0xC9800020000CD, 0xCA000020000CF, 0xCB000020000D3, 0xCB800020000D1, 0xCC00002000001, 0xCE000020000D3,
    0xCE800020000D5, 0xCF800020000D6, 0xD040012000001, 0xD3000020000DA, 0xD380002000001, 0xD4800020000DA,
    0xD600002000001, 0xD7000020000DA, 0xD780002000001, 0xD8800060000D9, 0xD9C000A000001, 0xDB800020000DB,
    0xDC00002000001, 0xDE00002000001, 0xE200002000002, 0xE280002000001, 0xE380002000002, 0xE400002000001,
    0xE500002000002, 0xE5C0042000001, 0xEF40042000001, 0xF880002000002, 0xF94000A000001, 0xFB00001FFFF9F,
    0xFB80001FFFFC8, 0xFC4009A000001, 0x11000001FFFF7E, 0x11140042000001, 0x11D00002002A2B, 0x11D80002000001,
    0x11E80001FFFF5D, 0x11F00002002A28, 0x12080002000001, 0x12180001FFFF3D, 0x12200002000045, 0x12280002000047,
    0x12340022000001, 0x1B84000A000001, 0x1BB00002000001, 0x1BF80002000074, 0x1C300002000026, 0x1C40000A000025,
    0x1C600002000040, 0x1C70000600003F, 0x1C880042000020, 0x1D180022000020, 0x1E780002000008, 0x1EC4005A000001,
    0x1FA00001FFFFC4, 0x1FB80002000001, 0x1FC80001FFFFF9, 0x1FD00002000001, 0x1FE80009FFFF7E, 0x2000003E000050,
    0x2080007E000020, 0x23040082000001, 0x245400D2000001, 0x2600000200000F, 0x260C0032000001, 0x2684017A000001,
    0x29880096000030, 0x85000096001C60, 0x86380002001C60, 0x86680002001C60, 0x9D00013E0097D0, 0x9F800016000008,
    0xE48000A9FFF440, 0xE5E80009FFF440, 0xF0040252000001, 0xF4F00001FFE241, 0xF504017A000001, 0xF840001DFFFFF8,
    0xF8C00015FFFFF8, 0xF940001DFFFFF8, 0xF9C0001DFFFFF8, 0xFA400015FFFFF8, 0xFACC0019FFFFF8, 0xFB40001DFFFFF8,
    0xFC40001DFFFFF8, 0xFCC0001DFFFFF8, 0xFD40001DFFFFF8, 0xFDC00005FFFFF8, 0xFDD00005FFFFB6, 0xFDE00001FFFFF7,
    0xFE40000DFFFFAA, 0xFE600001FFFFF7, 0xFEC00005FFFFF8, 0xFED00005FFFF9C, 0xFF400005FFFFF8, 0xFF500005FFFF90,
    0xFF600001FFFFF9, 0xFFC00005FFFF80, 0xFFD00005FFFF82, 0xFFE00001FFFFF7, 0x109300001FFE2A3, 0x109500001FFDF41,
    0x109580001FFDFBA, 0x10990000200001C, 0x10B00003E000010, 0x10C180002000001, 0x125B0006600001A,
    0x1600000BE000030, 0x163000002000001, 0x163100001FFD609, 0x163180001FFF11A, 0x163200001FFD619,
    0x1633C0012000001, 0x163680001FFD5E4, 0x163700001FFD603, 0x163780001FFD5E1, 0x163800001FFD5E2,
    0x163900002000001, 0x163A80002000001, 0x163F00005FFD5C1, 0x16404018A000001, 0x1675C000A000001,
    0x167900002000001, 0x5320400B2000001, 0x53404006A000001, 0x539140032000001, 0x5399400F2000001,
    0x53BCC000A000001, 0x53BE80001FF75FC, 0x53BF40022000001, 0x53C580002000001, 0x53C680001FF5AD8,
    0x53C84000A000001, 0x53CB4004A000001, 0x53D500001FF5ABC, 0x53D580001FF5AB1, 0x53D600001FF5AB5,
    0x53D680001FF5ABF, 0x53D700001FF5ABC, 0x53D800001FF5AEE, 0x53D880001FF5AD6, 0x53D900001FF5AEB,
    0x53D9800020003A0, 0x53DA4003A000001, 0x53E200001FFFFD0, 0x53E280001FF5ABD, 0x53E300001FF75C8,
    0x53E3C000A000001, 0x53E800002000001, 0x53EB4000A000001, 0x53FA80002000001, 0x7F9080066000020,
    0x82000009E000028, 0x82580008E000028, 0x82B80002A000027, 0x82BE0003A000027, 0x82C60001A000027,
    0x82CA00006000027, 0x8640000CA000040, 0x8C500007E000020, 0xB7200007E000020, 0xF48000086000022,
};
static const uint64_t ignis__case_upper[] = {
    0x5A800020002E7, 0x7000059FFFFE0, 0x7C00019FFFFE0, 0x7F80002000079, 0x80C00B9FFFFFF, 0x9880001FFFF18,
    0x99C0011FFFFFF, 0x9D40039FFFFFF, 0xA5C00B1FFFFFF, 0xBD40011FFFFFF, 0xBF80001FFFED4, 0xC0000020000C3,
    0xC1C0009FFFFFF, 0xC400001FFFFFF, 0xC600001FFFFFF, 0xC900001FFFFFF, 0xCA80002000061, 0xCC80001FFFFFF,
    0xCD000020000A3, 0xCF00002000082, 0xD0C0011FFFFFF, 0xD400001FFFFFF, 0xD680001FFFFFF, 0xD800001FFFFFF,
    0xDA40009FFFFFF, 0xDC80001FFFFFF, 0xDE80001FFFFFF, 0xDF80002000038, 0xE280001FFFFFF, 0xE300001FFFFFE,
    0xE400001FFFFFF, 0xE480001FFFFFE, 0xE580001FFFFFF, 0xE600001FFFFFE, 0xE740039FFFFFF, 0xEE80001FFFFB1,
    0xEFC0041FFFFFF, 0xF900001FFFFFF, 0xF980001FFFFFE, 0xFA80001FFFFFF, 0xFCC0099FFFFFF, 0x111C0041FFFFFF,
    0x11E00001FFFFFF, 0x11F80006002A3F, 0x12100001FFFFFF, 0x123C0021FFFFFF, 0x12800002002A1F, 0x12880002002A1C,
    0x12900002002A1E, 0x12980001FFFF2E, 0x12A00001FFFF32, 0x12B00005FFFF33, 0x12C80001FFFF36, 0x12D80001FFFF35,
    0x12E0000200A54F, 0x13000001FFFF33, 0x1308000200A54B, 0x13180001FFFF31, 0x1328000200A528, 0x1330000200A544,
    0x13400001FFFF2F, 0x13480001FFFF2D, 0x1350000200A544, 0x135800020029F7, 0x1360000200A541, 0x13780001FFFF2D,
    0x138800020029FD, 0x13900001FFFF2B, 0x13A80001FFFF2A, 0x13E800020029E7, 0x14000001FFFF26, 0x1410000200A543,
    0x14180001FFFF26, 0x1438000200A52A, 0x14400001FFFF26, 0x14480001FFFFBB, 0x14500005FFFF27, 0x14600001FFFFB9,
    0x14900001FFFF25, 0x14E8000200A515, 0x14F0000200A512, 0x1A280002000054, 0x1B8C0009FFFFFF, 0x1BB80001FFFFFF,
    0x1BD8000A000082, 0x1D600001FFFFDA, 0x1D680009FFFFDB, 0x1D880041FFFFE0, 0x1E100001FFFFE1, 0x1E180021FFFFE0,
    0x1E600001FFFFC0, 0x1E680005FFFFC1, 0x1E800001FFFFC2, 0x1E880001FFFFC7, 0x1EA80001FFFFD1, 0x1EB00001FFFFCA,
    0x1EB80001FFFFF8, 0x1ECC0059FFFFFF, 0x1F800001FFFFAA, 0x1F880001FFFFB0, 0x1F900002000007, 0x1F980001FFFF8C,
    0x1FA80001FFFFA0, 0x1FC00001FFFFFF, 0x1FD80001FFFFFF, 0x2180007DFFFFE0, 0x2280003DFFFFB0, 0x230C0081FFFFFF,
    0x245C00D1FFFFFF, 0x26140031FFFFFF, 0x26780001FFFFF1, 0x268C0179FFFFFF, 0x2B080095FFFFD0, 0x868000AA000BC0,
    0x87E8000A000BC0, 0x9FC00015FFFFF8, 0xE4000001FFE792, 0xE4080001FFE793, 0xE4100001FFE79C, 0xE4180005FFE79E,
    0xE4280001FFE79D, 0xE4300001FFE7A4, 0xE4380001FFE7DB, 0xE44000020089C2, 0xEBC80002008A04, 0xEBE80002000EE6,
    0xEC700002008A38, 0xF00C0251FFFFFF, 0xF4D80001FFFFC5, 0xF50C0179FFFFFF, 0xF800001E000008, 0xF8800016000008,
    0xF900001E000008, 0xF980001E000008, 0xFA000016000008, 0xFA8C001A000008, 0xFB00001E000008, 0xFB80000600004A,
    0xFB90000E000056, 0xFBB00006000064, 0xFBC00006000080, 0xFBD00006000070, 0xFBE0000600007E, 0xFD800006000008,
    0xFDF00001FFE3DB, 0xFE800006000008, 0xFF000006000008, 0xFF280002000007, 0x10A700001FFFFE4, 0x10B80003DFFFFF0,
    0x10C200001FFFFFF, 0x126800065FFFFE6, 0x1618000BDFFFFD0, 0x163080001FFFFFF, 0x163280001FFD5D5,
    0x163300001FFD5D8, 0x163440011FFFFFF, 0x163980001FFFFFF, 0x163B00001FFFFFF, 0x1640C0189FFFFFF,
    0x167640009FFFFFF, 0x167980001FFFFFF, 0x168000095FFE3A0, 0x169380001FFE3A0, 0x169680001FFE3A0,
    0x5320C00B1FFFFFF, 0x5340C0069FFFFFF, 0x5391C0031FFFFFF, 0x5399C00F1FFFFFF, 0x53BD40009FFFFFF,
    0x53BFC0021FFFFFF, 0x53C600001FFFFFF, 0x53C8C0009FFFFFF, 0x53CA00002000030, 0x53CBC0049FFFFFF,
    0x53DAC0039FFFFFF, 0x53E440009FFFFFF, 0x53E880001FFFFFF, 0x53EBC0009FFFFFF, 0x53FB00001FFFFFF,
    0x55A980001FFFC60, 0x55B80013DFF6830, 0x7FA080065FFFFE0, 0x82140009DFFFFD8, 0x826C0008DFFFFD8,
    0x82CB80029FFFFD9, 0x82D180039FFFFD9, 0x82D980019FFFFD9, 0x82DD80005FFFFD9, 0x8660000C9FFFFC0,
    0x8C600007DFFFFE0, 0xB7300007DFFFFE0, 0xF49100085FFFFDE,
};
/*  Letters that become several, or others at the beginning of a word. */
static const struct {
    uint32_t code;
    const char *upper, *title;
} ignis__case_special[] = {
    {0xDF, "SS", "Ss"}, {0x149, "\xCA\xBCN", "\xCA\xBCN"}, {0x1C4, "\xC7\x84", "\xC7\x85"},
    {0x1C5, "\xC7\x84", "\xC7\x85"}, {0x1C6, "\xC7\x84", "\xC7\x85"}, {0x1C7, "\xC7\x87", "\xC7\x88"},
    {0x1C8, "\xC7\x87", "\xC7\x88"}, {0x1C9, "\xC7\x87", "\xC7\x88"}, {0x1CA, "\xC7\x8A", "\xC7\x8B"},
    {0x1CB, "\xC7\x8A", "\xC7\x8B"}, {0x1CC, "\xC7\x8A", "\xC7\x8B"}, {0x1F0, "J\xCC\x8C", "J\xCC\x8C"},
    {0x1F1, "\xC7\xB1", "\xC7\xB2"}, {0x1F2, "\xC7\xB1", "\xC7\xB2"}, {0x1F3, "\xC7\xB1", "\xC7\xB2"},
    {0x390, "\xCE\x99\xCC\x88\xCC\x81", "\xCE\x99\xCC\x88\xCC\x81"},
    {0x3B0, "\xCE\xA5\xCC\x88\xCC\x81", "\xCE\xA5\xCC\x88\xCC\x81"},
    {0x587, "\xD4\xB5\xD5\x92", "\xD4\xB5\xD6\x82"}, {0x10D0, "\xE1\xB2\x90", "\xE1\x83\x90"},
    {0x10D1, "\xE1\xB2\x91", "\xE1\x83\x91"}, {0x10D2, "\xE1\xB2\x92", "\xE1\x83\x92"},
    {0x10D3, "\xE1\xB2\x93", "\xE1\x83\x93"}, {0x10D4, "\xE1\xB2\x94", "\xE1\x83\x94"},
    {0x10D5, "\xE1\xB2\x95", "\xE1\x83\x95"}, {0x10D6, "\xE1\xB2\x96", "\xE1\x83\x96"},
    {0x10D7, "\xE1\xB2\x97", "\xE1\x83\x97"}, {0x10D8, "\xE1\xB2\x98", "\xE1\x83\x98"},
    {0x10D9, "\xE1\xB2\x99", "\xE1\x83\x99"}, {0x10DA, "\xE1\xB2\x9A", "\xE1\x83\x9A"},
    {0x10DB, "\xE1\xB2\x9B", "\xE1\x83\x9B"}, {0x10DC, "\xE1\xB2\x9C", "\xE1\x83\x9C"},
    {0x10DD, "\xE1\xB2\x9D", "\xE1\x83\x9D"}, {0x10DE, "\xE1\xB2\x9E", "\xE1\x83\x9E"},
    {0x10DF, "\xE1\xB2\x9F", "\xE1\x83\x9F"}, {0x10E0, "\xE1\xB2\xA0", "\xE1\x83\xA0"},
    {0x10E1, "\xE1\xB2\xA1", "\xE1\x83\xA1"}, {0x10E2, "\xE1\xB2\xA2", "\xE1\x83\xA2"},
    {0x10E3, "\xE1\xB2\xA3", "\xE1\x83\xA3"}, {0x10E4, "\xE1\xB2\xA4", "\xE1\x83\xA4"},
    {0x10E5, "\xE1\xB2\xA5", "\xE1\x83\xA5"}, {0x10E6, "\xE1\xB2\xA6", "\xE1\x83\xA6"},
    {0x10E7, "\xE1\xB2\xA7", "\xE1\x83\xA7"}, {0x10E8, "\xE1\xB2\xA8", "\xE1\x83\xA8"},
    {0x10E9, "\xE1\xB2\xA9", "\xE1\x83\xA9"}, {0x10EA, "\xE1\xB2\xAA", "\xE1\x83\xAA"},
    {0x10EB, "\xE1\xB2\xAB", "\xE1\x83\xAB"}, {0x10EC, "\xE1\xB2\xAC", "\xE1\x83\xAC"},
    {0x10ED, "\xE1\xB2\xAD", "\xE1\x83\xAD"}, {0x10EE, "\xE1\xB2\xAE", "\xE1\x83\xAE"},
    {0x10EF, "\xE1\xB2\xAF", "\xE1\x83\xAF"}, {0x10F0, "\xE1\xB2\xB0", "\xE1\x83\xB0"},
    {0x10F1, "\xE1\xB2\xB1", "\xE1\x83\xB1"}, {0x10F2, "\xE1\xB2\xB2", "\xE1\x83\xB2"},
    {0x10F3, "\xE1\xB2\xB3", "\xE1\x83\xB3"}, {0x10F4, "\xE1\xB2\xB4", "\xE1\x83\xB4"},
    {0x10F5, "\xE1\xB2\xB5", "\xE1\x83\xB5"}, {0x10F6, "\xE1\xB2\xB6", "\xE1\x83\xB6"},
    {0x10F7, "\xE1\xB2\xB7", "\xE1\x83\xB7"}, {0x10F8, "\xE1\xB2\xB8", "\xE1\x83\xB8"},
    {0x10F9, "\xE1\xB2\xB9", "\xE1\x83\xB9"}, {0x10FA, "\xE1\xB2\xBA", "\xE1\x83\xBA"},
    {0x10FD, "\xE1\xB2\xBD", "\xE1\x83\xBD"}, {0x10FE, "\xE1\xB2\xBE", "\xE1\x83\xBE"},
    {0x10FF, "\xE1\xB2\xBF", "\xE1\x83\xBF"}, {0x1E96, "H\xCC\xB1", "H\xCC\xB1"},
    {0x1E97, "T\xCC\x88", "T\xCC\x88"}, {0x1E98, "W\xCC\x8A", "W\xCC\x8A"}, {0x1E99, "Y\xCC\x8A", "Y\xCC\x8A"},
    {0x1E9A, "A\xCA\xBE", "A\xCA\xBE"}, {0x1F50, "\xCE\xA5\xCC\x93", "\xCE\xA5\xCC\x93"},
    {0x1F52, "\xCE\xA5\xCC\x93\xCC\x80", "\xCE\xA5\xCC\x93\xCC\x80"},
    {0x1F54, "\xCE\xA5\xCC\x93\xCC\x81", "\xCE\xA5\xCC\x93\xCC\x81"},
    {0x1F56, "\xCE\xA5\xCC\x93\xCD\x82", "\xCE\xA5\xCC\x93\xCD\x82"},
    {0x1F80, "\xE1\xBC\x88\xCE\x99", "\xE1\xBE\x88"}, {0x1F81, "\xE1\xBC\x89\xCE\x99", "\xE1\xBE\x89"},
    {0x1F82, "\xE1\xBC\x8A\xCE\x99", "\xE1\xBE\x8A"}, {0x1F83, "\xE1\xBC\x8B\xCE\x99", "\xE1\xBE\x8B"},
    {0x1F84, "\xE1\xBC\x8C\xCE\x99", "\xE1\xBE\x8C"}, {0x1F85, "\xE1\xBC\x8D\xCE\x99", "\xE1\xBE\x8D"},
    {0x1F86, "\xE1\xBC\x8E\xCE\x99", "\xE1\xBE\x8E"}, {0x1F87, "\xE1\xBC\x8F\xCE\x99", "\xE1\xBE\x8F"},
    {0x1F88, "\xE1\xBC\x88\xCE\x99", "\xE1\xBE\x88"}, {0x1F89, "\xE1\xBC\x89\xCE\x99", "\xE1\xBE\x89"},
    {0x1F8A, "\xE1\xBC\x8A\xCE\x99", "\xE1\xBE\x8A"}, {0x1F8B, "\xE1\xBC\x8B\xCE\x99", "\xE1\xBE\x8B"},
    {0x1F8C, "\xE1\xBC\x8C\xCE\x99", "\xE1\xBE\x8C"}, {0x1F8D, "\xE1\xBC\x8D\xCE\x99", "\xE1\xBE\x8D"},
    {0x1F8E, "\xE1\xBC\x8E\xCE\x99", "\xE1\xBE\x8E"}, {0x1F8F, "\xE1\xBC\x8F\xCE\x99", "\xE1\xBE\x8F"},
    {0x1F90, "\xE1\xBC\xA8\xCE\x99", "\xE1\xBE\x98"}, {0x1F91, "\xE1\xBC\xA9\xCE\x99", "\xE1\xBE\x99"},
    {0x1F92, "\xE1\xBC\xAA\xCE\x99", "\xE1\xBE\x9A"}, {0x1F93, "\xE1\xBC\xAB\xCE\x99", "\xE1\xBE\x9B"},
    {0x1F94, "\xE1\xBC\xAC\xCE\x99", "\xE1\xBE\x9C"}, {0x1F95, "\xE1\xBC\xAD\xCE\x99", "\xE1\xBE\x9D"},
    {0x1F96, "\xE1\xBC\xAE\xCE\x99", "\xE1\xBE\x9E"}, {0x1F97, "\xE1\xBC\xAF\xCE\x99", "\xE1\xBE\x9F"},
    {0x1F98, "\xE1\xBC\xA8\xCE\x99", "\xE1\xBE\x98"}, {0x1F99, "\xE1\xBC\xA9\xCE\x99", "\xE1\xBE\x99"},
    {0x1F9A, "\xE1\xBC\xAA\xCE\x99", "\xE1\xBE\x9A"}, {0x1F9B, "\xE1\xBC\xAB\xCE\x99", "\xE1\xBE\x9B"},
    {0x1F9C, "\xE1\xBC\xAC\xCE\x99", "\xE1\xBE\x9C"}, {0x1F9D, "\xE1\xBC\xAD\xCE\x99", "\xE1\xBE\x9D"},
    {0x1F9E, "\xE1\xBC\xAE\xCE\x99", "\xE1\xBE\x9E"}, {0x1F9F, "\xE1\xBC\xAF\xCE\x99", "\xE1\xBE\x9F"},
    {0x1FA0, "\xE1\xBD\xA8\xCE\x99", "\xE1\xBE\xA8"}, {0x1FA1, "\xE1\xBD\xA9\xCE\x99", "\xE1\xBE\xA9"},
    {0x1FA2, "\xE1\xBD\xAA\xCE\x99", "\xE1\xBE\xAA"}, {0x1FA3, "\xE1\xBD\xAB\xCE\x99", "\xE1\xBE\xAB"},
    {0x1FA4, "\xE1\xBD\xAC\xCE\x99", "\xE1\xBE\xAC"}, {0x1FA5, "\xE1\xBD\xAD\xCE\x99", "\xE1\xBE\xAD"},
    {0x1FA6, "\xE1\xBD\xAE\xCE\x99", "\xE1\xBE\xAE"}, {0x1FA7, "\xE1\xBD\xAF\xCE\x99", "\xE1\xBE\xAF"},
    {0x1FA8, "\xE1\xBD\xA8\xCE\x99", "\xE1\xBE\xA8"}, {0x1FA9, "\xE1\xBD\xA9\xCE\x99", "\xE1\xBE\xA9"},
    {0x1FAA, "\xE1\xBD\xAA\xCE\x99", "\xE1\xBE\xAA"}, {0x1FAB, "\xE1\xBD\xAB\xCE\x99", "\xE1\xBE\xAB"},
    {0x1FAC, "\xE1\xBD\xAC\xCE\x99", "\xE1\xBE\xAC"}, {0x1FAD, "\xE1\xBD\xAD\xCE\x99", "\xE1\xBE\xAD"},
    {0x1FAE, "\xE1\xBD\xAE\xCE\x99", "\xE1\xBE\xAE"}, {0x1FAF, "\xE1\xBD\xAF\xCE\x99", "\xE1\xBE\xAF"},
    {0x1FB2, "\xE1\xBE\xBA\xCE\x99", "\xE1\xBE\xBA\xCD\x85"}, {0x1FB3, "\xCE\x91\xCE\x99", "\xE1\xBE\xBC"},
    {0x1FB4, "\xCE\x86\xCE\x99", "\xCE\x86\xCD\x85"}, {0x1FB6, "\xCE\x91\xCD\x82", "\xCE\x91\xCD\x82"},
    {0x1FB7, "\xCE\x91\xCD\x82\xCE\x99", "\xCE\x91\xCD\x82\xCD\x85"}, {0x1FBC, "\xCE\x91\xCE\x99", "\xE1\xBE\xBC"},
    {0x1FC2, "\xE1\xBF\x8A\xCE\x99", "\xE1\xBF\x8A\xCD\x85"}, {0x1FC3, "\xCE\x97\xCE\x99", "\xE1\xBF\x8C"},
    {0x1FC4, "\xCE\x89\xCE\x99", "\xCE\x89\xCD\x85"}, {0x1FC6, "\xCE\x97\xCD\x82", "\xCE\x97\xCD\x82"},
    {0x1FC7, "\xCE\x97\xCD\x82\xCE\x99", "\xCE\x97\xCD\x82\xCD\x85"}, {0x1FCC, "\xCE\x97\xCE\x99", "\xE1\xBF\x8C"},
    {0x1FD2, "\xCE\x99\xCC\x88\xCC\x80", "\xCE\x99\xCC\x88\xCC\x80"},
    {0x1FD3, "\xCE\x99\xCC\x88\xCC\x81", "\xCE\x99\xCC\x88\xCC\x81"},
    {0x1FD6, "\xCE\x99\xCD\x82", "\xCE\x99\xCD\x82"},
    {0x1FD7, "\xCE\x99\xCC\x88\xCD\x82", "\xCE\x99\xCC\x88\xCD\x82"},
    {0x1FE2, "\xCE\xA5\xCC\x88\xCC\x80", "\xCE\xA5\xCC\x88\xCC\x80"},
    {0x1FE3, "\xCE\xA5\xCC\x88\xCC\x81", "\xCE\xA5\xCC\x88\xCC\x81"},
    {0x1FE4, "\xCE\xA1\xCC\x93", "\xCE\xA1\xCC\x93"}, {0x1FE6, "\xCE\xA5\xCD\x82", "\xCE\xA5\xCD\x82"},
    {0x1FE7, "\xCE\xA5\xCC\x88\xCD\x82", "\xCE\xA5\xCC\x88\xCD\x82"},
    {0x1FF2, "\xE1\xBF\xBA\xCE\x99", "\xE1\xBF\xBA\xCD\x85"}, {0x1FF3, "\xCE\xA9\xCE\x99", "\xE1\xBF\xBC"},
    {0x1FF4, "\xCE\x8F\xCE\x99", "\xCE\x8F\xCD\x85"}, {0x1FF6, "\xCE\xA9\xCD\x82", "\xCE\xA9\xCD\x82"},
    {0x1FF7, "\xCE\xA9\xCD\x82\xCE\x99", "\xCE\xA9\xCD\x82\xCD\x85"}, {0x1FFC, "\xCE\xA9\xCE\x99", "\xE1\xBF\xBC"},
    {0xFB00, "FF", "Ff"}, {0xFB01, "FI", "Fi"}, {0xFB02, "FL", "Fl"}, {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"}, {0xFB05, "ST", "St"}, {0xFB06, "ST", "St"},
    {0xFB13, "\xD5\x84\xD5\x86", "\xD5\x84\xD5\xB6"}, {0xFB14, "\xD5\x84\xD4\xB5", "\xD5\x84\xD5\xA5"},
    {0xFB15, "\xD5\x84\xD4\xBB", "\xD5\x84\xD5\xAB"}, {0xFB16, "\xD5\x8E\xD5\x86", "\xD5\x8E\xD5\xB6"},
    {0xFB17, "\xD5\x84\xD4\xBD", "\xD5\x84\xD5\xAD"},
};
/* clang-format on */
/*  As far as here. Other letters than these and ASCII have no case. */

static uint32_t ignis__case_lower_of(uint32_t code)
{
    if (code < 128)
        return code >= 'A' && code <= 'Z' ? code | 32 : code;
    return ignis__char_case(ignis__case_lower, IGNIS__COUNT(ignis__case_lower), code);
}

static uint32_t ignis__case_upper_of(uint32_t code)
{
    if (code < 128)
        return code >= 'a' && code <= 'z' ? code & ~32u : code;
    return ignis__char_case(ignis__case_upper, IGNIS__COUNT(ignis__case_upper), code);
}

/*  Tells whether a character has upper and lower case. A letter with one case only counts as having none,
    except a few. */
static bool ignis__case_is(uint32_t code)
{
    return ignis__case_lower_of(code) != code || ignis__case_upper_of(code) != code || code == 0xDF || code == 0x130 ||
           code == 0xAA || code == 0xBA;
}

/*  Tells whether a sigma ends a word: a letter with case precedes it, and no such letter follows. Marks are
    skipped. */
static bool ignis__case_ends(const char *text, size_t size, size_t at)
{
    int length, way;
    for (way = 0; way < 2; way++) {
        size_t place = at;
        uint32_t code = 0;
        for (;;) {
            if (way == 0 ? place == 0 : place + (size_t)ignis__utf8_length(text + place, size - place) >= size)
                break;
            place = way == 0 ? ignis__chat_before(text, place)
                             : place + (size_t)ignis__utf8_length(text + place, size - place);
            code = ignis__utf8_code(text + place, &length);
            if (!ignis__char_mark(code) && !(code < 128 && code && strchr("'.:^`", (int)code)) && code != 0xAD &&
                code != 0xB7 && code != 0x2019)
                break;
            code = 0;
        }
        if (ignis__case_is(code) != (way == 0))
            return false;
    }
    return true;
}

/*  Writes a character in lower case (0), upper case (1) or title case (2). Writes at most 6 bytes and returns
    their number. */
static int ignis__case_write(char *out, const char *text, size_t size, size_t at, int how)
{
    int low = 0, high = IGNIS__COUNT(ignis__case_special), length;
    uint32_t code = ignis__utf8_code(text + at, &length);
    if (how == 0 && code == 0x130)
        return (memcpy(out, "i\xCC\x87", 3), 3);
    if (how == 0 && code == 0x3A3 && ignis__case_ends(text, size, at))
        return ignis__utf8_write(out, 0x3C2);
    if (how == 0)
        return ignis__utf8_write(out, ignis__case_lower_of(code));
    while (code >= 128 && low < high) {
        int middle = (low + high) / 2;
        if (ignis__case_special[middle].code < code)
            low = middle + 1;
        else
            high = middle;
    }
    if (code >= 128 && low < IGNIS__COUNT(ignis__case_special) && ignis__case_special[low].code == code) {
        const char *special = how == 1 ? ignis__case_special[low].upper : ignis__case_special[low].title;
        length = (int)strlen(special);
        memcpy(out, special, (size_t)length);
        return length;
    }
    return ignis__utf8_write(out, ignis__case_upper_of(code));
}

/*  Runs lower (0), upper (1), capitalize (2), the filter title (3) and the method title (4). */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_case(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value s = ignis__chat_text(chat, call->self);
    size_t size = (size_t)s.number, capacity = size + 1, at, part = 0, out = 0;
    int how = call->how == 0 ? 0 : call->how % 2 == 1 ? 1 : 2, length, i;
    char *text, *marks;
    for (at = 0; at < size; at++)
        capacity += (unsigned char)s.u.text[at] < 128 ? 0 : 2; /* at most 6 bytes of 2 */
    text = ignis__chat_work(chat, s.number) ? (char *)ignis__chat_alloc(chat, capacity) : NULL;
    marks = s.marks ? (char *)ignis__chat_alloc(chat, capacity) : NULL;
    if (!text || (s.marks && !marks))
        return s;
    for (at = 0; at < size; at += (size_t)length) {
        uint32_t code = ignis__utf8_code(s.u.text + at, &length);
        int written = ignis__case_write(text + out, s.u.text + part, size - part, at - part, how);
        for (i = 0; marks && i < written; i++)
            marks[out + (size_t)i] = s.marks[at];
        out += (size_t)written;
        if (call->how == 3) { /* each piece is written in lower case, one by one */
            bool between = (code < 128 && code && strchr("-({[<", (int)code)) || ignis__chat_is_space(s.u.text + at);
            part = how == 1 || between ? at + (size_t)length : part;
            how = between ? 1 : 0;
        } else if (call->how >= 2) {
            how = call->how == 4 && !ignis__case_is(code) ? 2 : 0;
        }
    }
    s.u.text = text;
    s.marks = marks;
    s.number = (int64_t)out;
    s.of = call->how == 3 ? 0 : s.of;
    return s;
}
